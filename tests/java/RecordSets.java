import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.xerial.snappy.SnappyError;

/**
 * Record sets through Kafka's own classes, one line of JSON a set.
 *
 * <p>{@code RecordSets read}: standard input holds sets, each behind its length as a 32-bit number; the lines say what
 * Kafka reads in them. Byte strings are base64. A batch that is refused ends its line with "error".
 */
public final class RecordSets {
    private static final Base64.Encoder BASE64 = Base64.getEncoder();

    private RecordSets() {}

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        if (args.length == 1 && args[0].equals("read")) {
            DataInputStream in = new DataInputStream(System.in);
            for (byte[] set = nextSet(in); set != null; set = nextSet(in)) {
                out.println("{" + describe(ByteBuffer.wrap(set)) + "}");
            }
        } else {
            System.err.println("usage: RecordSets read");
            System.exit(2);
        }
        out.flush();
    }

    private static byte[] nextSet(DataInputStream in) throws IOException {
        try {
            byte[] set = new byte[in.readInt()];
            in.readFully(set);
            return set;
        } catch (EOFException end) {
            return null;
        }
    }

    private static String describe(ByteBuffer set) {
        StringBuilder batches = new StringBuilder();
        StringBuilder records = new StringBuilder();
        String error = "";
        try {
            MemoryRecords whole = MemoryRecords.readableRecords(set);
            for (MutableRecordBatch batch : whole.batches()) {
                batch.ensureValid();
                batches.append(batches.length() == 0 ? "" : ",").append(describe(batch));
                try (CloseableIterator<Record> each = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                    while (each.hasNext()) {
                        Record record = each.next();
                        record.ensureValid();
                        records.append(records.length() == 0 ? "" : ",").append(describe(record, batch));
                    }
                }
            }
        } catch (RuntimeException | SnappyError refused) {
            error = ",\"error\":" + text(ByteBuffer.wrap(refused.toString().getBytes(StandardCharsets.UTF_8)));
        }
        return "\"batches\":[" + batches + "],\"records\":[" + records + "]" + error;
    }

    /** [magic, base offset, last offset, count or null, codec, timestamp type, max timestamp, producer, epoch, ...]. */
    private static String describe(MutableRecordBatch batch) {
        return "[" + batch.magic() + "," + batch.baseOffset() + "," + batch.lastOffset() + "," + batch.countOrNull()
            + "," + batch.compressionType().id + "," + batch.timestampType().id + "," + batch.maxTimestamp()
            + "," + batch.producerId() + "," + batch.producerEpoch() + "," + batch.baseSequence()
            + "," + batch.partitionLeaderEpoch() + "," + batch.isTransactional() + "," + batch.isControlBatch() + "]";
    }

    /** [offset, timestamp, timestamp type, key, value, [[header key, header value], ...], sequence]. */
    private static String describe(Record record, RecordBatch batch) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            byte[] value = header.value();
            headers.append(headers.length() == 0 ? "[" : ",[")
                .append(text(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)))).append(",")
                .append(text(value == null ? null : ByteBuffer.wrap(value))).append("]");
        }
        return "[" + record.offset() + "," + record.timestamp() + "," + batch.timestampType().id
            + "," + text(record.key()) + "," + text(record.value()) + ",[" + headers + "]," + record.sequence() + "]";
    }

    private static String text(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return "\"" + BASE64.encodeToString(copy) + "\"";
    }
}
