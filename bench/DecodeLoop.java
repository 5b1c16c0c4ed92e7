import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Kafka's own record loop: each line on standard input is the path of a record set, or empty for the set before it; each
 * answer is a line with the number of records and the CPU nanoseconds of this thread.
 */
public final class DecodeLoop {
    private static long sink;

    private DecodeLoop() {}

    public static void main(String[] args) throws IOException {
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        ByteBuffer set = ByteBuffer.allocate(0);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (!line.isEmpty()) {
                set = ByteBuffer.wrap(Files.readAllBytes(Path.of(line)));
            }
            long start = clock.getCurrentThreadCpuTime();
            long records = walk(set.duplicate());
            System.out.println(records + " " + (clock.getCurrentThreadCpuTime() - start));
        }
        System.err.println(sink);
    }

    private static long walk(ByteBuffer set) {
        BufferSupplier buffers = BufferSupplier.create();
        long count = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(set).batches()) {
            batch.ensureValid();
            long type = batch.timestampType().id;
            try (CloseableIterator<Record> records = batch.streamingIterator(buffers)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    ByteBuffer key = record.key();
                    ByteBuffer value = record.value();
                    sink += record.offset() + record.timestamp() + type
                        + (key == null ? 0 : key.remaining()) + (value == null ? 0 : value.remaining());
                    count++;
                }
            }
        }
        buffers.close();
        return count;
    }
}
