import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node in a folder, until the input ends. Prints the ports of both nodes' WebHDFS. */
public final class Hdfs {
    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("dfs.permissions.enabled", "true");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration, new File(args[0])).numDataNodes(1).build();
        cluster.waitActive();
        int port = cluster.getNameNode().getHttpAddress().getPort();
        System.out.println(port + " " + cluster.getDataNodes().get(0).getInfoPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            // a test process that dies ends the input
        }
        System.exit(0); // the folder is deleted, so nothing needs an orderly end
    }
}
