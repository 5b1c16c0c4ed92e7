import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.CloseableIterator;
import org.xerial.snappy.SnappyError;

/**
 * Record sets through Kafka's own classes, one line of JSON a set.
 *
 * <p>{@code RecordSets read}: standard input holds sets, each behind its length as a 32-bit number; the lines say what
 * Kafka reads in them. {@code RecordSets write SEED COUNT}: random sets made by Kafka, with their bytes.
 * Byte strings are base64. A batch that is refused ends its line with "error".
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
        } else if (args.length == 3 && args[0].equals("write")) {
            Random random = new Random(Long.parseLong(args[1]));
            for (int i = 0; i < Integer.parseInt(args[2]); i++) {
                byte[] set = randomSet(random);
                out.println("{\"set\":" + text(ByteBuffer.wrap(set)) + "," + describe(ByteBuffer.wrap(set)) + "}");
            }
        } else {
            System.err.println("usage: RecordSets read | RecordSets write SEED COUNT");
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

    // ---- reading

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

    // ---- writing

    private static byte[] randomSet(Random random) {
        ByteBufferOutputStream out = new ByteBufferOutputStream(512);
        long offset = random.nextInt(3) == 0 ? 0 : random.nextInt(1_000_000_000);
        for (int batches = 1 + random.nextInt(4); batches > 0; batches--) {
            byte[] batch = randomBatch(random, offset);
            offset = lastOffset(batch) + 1 + random.nextInt(3);
            out.write(batch, 0, batch.length);
        }
        out.buffer().flip();
        byte[] set = new byte[out.buffer().remaining()];
        out.buffer().get(set);
        return set;
    }

    private static long lastOffset(byte[] batch) {
        long last = 0;
        for (MutableRecordBatch each : MemoryRecords.readableRecords(ByteBuffer.wrap(batch)).batches()) {
            last = each.lastOffset();
        }
        return last;
    }

    private static byte[] randomBatch(Random random, long offset) {
        byte magic = (byte) random.nextInt(3);
        CompressionType codec = CompressionType.forId(random.nextInt(magic == 2 ? 5 : 4));
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : random.nextBoolean() ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME;
        long now = 1_500_000_000_000L + random.nextInt();
        boolean producer = magic == 2 && random.nextInt(3) == 0;
        boolean transactional = producer && random.nextBoolean();
        boolean control = transactional && random.nextInt(3) == 0;
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(256), magic,
            Compression.of(codec).build(), type, offset,
            type == TimestampType.LOG_APPEND_TIME ? now : RecordBatch.NO_TIMESTAMP,
            producer ? random.nextInt(1_000_000) : RecordBatch.NO_PRODUCER_ID,
            producer ? (short) random.nextInt(Short.MAX_VALUE) : RecordBatch.NO_PRODUCER_EPOCH,
            producer && !control ? random.nextInt(Integer.MAX_VALUE) : RecordBatch.NO_SEQUENCE,
            transactional, control, magic == 2 ? random.nextInt(100) : RecordBatch.NO_PARTITION_LEADER_EPOCH,
            Integer.MAX_VALUE);
        if (control) {
            ControlRecordType outcome = random.nextBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
            builder.appendEndTxnMarker(now, new EndTransactionMarker(outcome, random.nextInt(9)));
        } else {
            int count = 1 + random.nextInt(random.nextInt(8) == 0 ? 400 : 12);
            for (int i = 0; i < count; i++) {
                long timestamp = magic == 0 || random.nextInt(20) == 0 ? RecordBatch.NO_TIMESTAMP
                    : random.nextInt(20) == 0 ? random.nextLong() & Long.MAX_VALUE : now + random.nextInt(100_000);
                builder.appendWithOffset(offset, timestamp, bytes(random, 20), bytes(random, 300),
                    magic == 2 ? headers(random) : Record.EMPTY_HEADERS);
                offset += random.nextInt(10) == 0 ? 1 + random.nextInt(5) : 1;
            }
        }
        ByteBuffer built = builder.build().buffer();
        byte[] batch = new byte[built.remaining()];
        built.get(batch);
        return batch;
    }

    private static byte[] bytes(Random random, int most) {
        if (random.nextInt(8) == 0) {
            return null;
        }
        byte[] some = new byte[random.nextInt(6) == 0 ? 0 : random.nextInt(500) == 0 ? 20_000 : random.nextInt(most)];
        if (random.nextBoolean()) {
            random.nextBytes(some);
        }
        return some;
    }

    private static Header[] headers(Random random) {
        Header[] headers = new Header[random.nextInt(3) == 0 ? 1 + random.nextInt(4) : 0];
        for (int i = 0; i < headers.length; i++) {
            headers[i] = new RecordHeader(random.nextBoolean() ? "trace" : "gr\u00f6\u00dfe-" + random.nextInt(9),
                bytes(random, 30));
        }
        return headers;
    }
}
