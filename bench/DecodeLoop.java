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
 * Kafka's own record loop over the file that the argument names, once for each line on standard input; each answer is a
 * line with the number of records and the CPU nanoseconds of this thread. Every CRC is checked once, as a consumer does:
 * of batches, of messages, and of the messages inside a wrapper. Keys and values are sliced out and their first byte is
 * read; nothing is copied.
 */
public final class DecodeLoop {
    private static long sink;

    private DecodeLoop() {}

    public static void main(String[] args) throws IOException {
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        ByteBuffer set = ByteBuffer.wrap(Files.readAllBytes(Path.of(args[0])));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
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
            boolean inner = batch.isCompressed() && batch.magic() < 2;
            try (CloseableIterator<Record> records = batch.streamingIterator(buffers)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    if (inner) {
                        record.ensureValid();
                    }
                    sink += record.offset() + record.timestamp() + type + touch(record.key()) + touch(record.value());
                    count++;
                }
            }
        }
        buffers.close();
        return count;
    }

    private static int touch(ByteBuffer bytes) {
        return bytes == null || !bytes.hasRemaining() ? 0 : bytes.remaining() + bytes.get(bytes.position());
    }
}
