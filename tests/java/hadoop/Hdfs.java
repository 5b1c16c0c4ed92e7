import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node in a folder, until the input ends. Prints the port of the name node's WebHDFS. */
public final class Hdfs {
    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("dfs.permissions.enabled", "true");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration, new File(args[0])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println(cluster.getNameNode().getHttpAddress().getPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            // a test process that dies ends the input
        }
        cluster.shutdown();
    }
}
