import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * Kafka's LogValidator over the sets of a file, once for each line on standard input; each answer is a line with the
 * number of records and the CPU nanoseconds of this thread. Arguments: the file; the message format; source and target
 * codec; the timestamp type; "checked" where the shallow walk with its CRCs belongs to it, as in every append.
 *
 * The file is a sequence of sets, each behind its length. They are copied anew for each round, which is not timed:
 * LogValidator works in the buffer that the request came in.
 */
public final class AppendLoop implements LogValidator.MetricsRecorder {
    private final byte magic;
    private final CompressionType source;
    private final Compression target;
    private final TimestampType type;
    private final boolean checked;
    private final BufferSupplier buffers = BufferSupplier.create();
    private final TopicPartition partition = new TopicPartition("t", 0);

    private AppendLoop(String[] args) {
        magic = Byte.parseByte(args[1]);
        source = CompressionType.forName(args[2]);
        target = Compression.of(CompressionType.forName(args[3])).build();
        type = TimestampType.forName(args[4]);
        checked = args[5].equals("checked");
    }

    public static void main(String[] args) throws IOException {
        AppendLoop loop = new AppendLoop(args);
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        byte[] file = Files.readAllBytes(Path.of(args[0]));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<ByteBuffer> sets = sets(file.clone());
            long start = clock.getCurrentThreadCpuTime();
            long records = 0;
            for (ByteBuffer set : sets) {
                records = loop.append(MemoryRecords.readableRecords(set), records);
            }
            System.out.println(records + " " + (clock.getCurrentThreadCpuTime() - start));
        }
    }

    private static List<ByteBuffer> sets(byte[] file) {
        List<ByteBuffer> sets = new ArrayList<>();
        ByteBuffer whole = ByteBuffer.wrap(file);
        while (whole.hasRemaining()) {
            int size = whole.getInt();
            ByteBuffer set = whole.slice();
            set.limit(size);
            sets.add(set.slice());
            whole.position(whole.position() + size);
        }
        return sets;
    }

    /** The log end offset after the set. */
    private long append(MemoryRecords set, long offset) {
        if (checked) {
            for (MutableRecordBatch batch : set.batches()) {
                if (!batch.isValid()) {
                    throw new IllegalStateException("a set is damaged");
                }
            }
        }
        PrimitiveRef.LongRef counter = PrimitiveRef.ofLong(offset);
        LogValidator validator = new LogValidator(set, partition, Time.SYSTEM, source, target, false, magic, type,
            Long.MAX_VALUE, Long.MAX_VALUE, 0, AppendOrigin.CLIENT, MetadataVersion.latestProduction());
        validator.validateMessagesAndAssignOffsets(counter, this, buffers);
        return counter.value;
    }

    @Override
    public void recordInvalidMagic() {}

    @Override
    public void recordInvalidOffset() {}

    @Override
    public void recordInvalidSequence() {}

    @Override
    public void recordInvalidChecksums() {}

    @Override
    public void recordNoKeyCompactedTopic() {}
}
