import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Many record sets through Kafka's own classes, as columns on standard output.
 *
 * <p>{@code Interop read}: standard input holds sets, each behind its length as a 32-bit number. {@code Interop write
 * SEED COUNT}: random sets made by Kafka, with their bytes. A set is refused where a consumer
 * that checks CRCs, or a broker that is sent it, would: then it has the exception's text in {@code error}, and no rows.
 */
public final class Interop {
    private final Columns columns = new Columns();

    private Interop() {}

    public static void main(String[] args) throws IOException {
        Interop answers = new Interop();
        if (args.length == 1 && args[0].equals("read")) {
            DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
            for (byte[] set = nextSet(in); set != null; set = nextSet(in)) {
                answers.add(set);
            }
        } else if (args.length == 3 && args[0].equals("write")) {
            Random random = new Random(Long.parseLong(args[1]));
            for (int left = Integer.parseInt(args[2]); left > 0; left--) {
                byte[] set = RandomSets.next(random);
                answers.columns.put("set", set);
                answers.add(set);
            }
        } else {
            System.err.println("usage: Interop read | Interop write SEED COUNT");
            System.exit(2);
        }
        answers.columns.writeTo(new BufferedOutputStream(System.out, 1 << 16));
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

    private void add(byte[] set) {
        columns.keep();
        int batches = 0;
        String error = null;
        long records = 0;
        try {
            long position = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(set)).batches()) {
                batch.ensureValid();
                records += add(batch, position);
                position += batch.sizeInBytes();
                batches++;
            }
        } catch (Throwable refused) { // also errors: damaged lengths can ask for all the memory there is
            columns.undo();
            batches = 0;
            records = 0;
            error = refused.toString();
        }
        columns.put("set.batches", batches);
        columns.put("set.records", records);
        columns.put("set.error", error == null ? null : error.getBytes(StandardCharsets.UTF_8));
        columns.put("set.validBytes", validBytes(set));
    }

    private static long validBytes(byte[] set) {
        try {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(set)).validBytes();
        } catch (RuntimeException refused) {
            return -1;
        }
    }

    /** The number of its records. */
    private int add(MutableRecordBatch batch, long position) {
        int records = 0;
        try (CloseableIterator<Record> each = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
            for (; each.hasNext(); records++) {
                Record record = each.next();
                record.ensureValid();
                add(record, batch);
            }
        }
        columns.put("batch.position", position);
        columns.put("batch.sizeInBytes", batch.sizeInBytes());
        columns.put("batch.magic", batch.magic());
        columns.put("batch.baseOffset", batch.baseOffset());
        columns.put("batch.lastOffset", batch.lastOffset());
        columns.put("batch.count", batch.countOrNull() == null ? records : batch.countOrNull());
        columns.put("batch.baseTimestamp", batch instanceof DefaultRecordBatch
            ? ((DefaultRecordBatch) batch).baseTimestamp() : batch.maxTimestamp());
        columns.put("batch.maxTimestamp", batch.maxTimestamp());
        columns.put("batch.timestampType", batch.timestampType().id);
        columns.put("batch.codec", batch.compressionType().id);
        columns.put("batch.partitionLeaderEpoch", batch.partitionLeaderEpoch());
        columns.put("batch.producerId", batch.producerId());
        columns.put("batch.producerEpoch", batch.producerEpoch());
        columns.put("batch.baseSequence", batch.baseSequence());
        columns.put("batch.transactional", batch.isTransactional());
        columns.put("batch.control", batch.isControlBatch());
        columns.put("batch.crcOk", batch.isValid());
        columns.put("batch.records", records);
        return records;
    }

    private void add(Record record, RecordBatch batch) {
        boolean batchFormat = batch.magic() == RecordBatch.MAGIC_VALUE_V2;
        boolean timeless = !batchFormat && record.hasTimestampType(TimestampType.NO_TIMESTAMP_TYPE);
        columns.put("record.offset", record.offset());
        columns.put("record.timestamp", record.timestamp());
        columns.put("record.timestampType", timeless ? TimestampType.NO_TIMESTAMP_TYPE.id : batch.timestampType().id);
        columns.put("record.magic", batchFormat ? 2 : record.hasMagic(RecordBatch.MAGIC_VALUE_V0) ? 0 : 1);
        columns.put("record.sequence", record.sequence());
        columns.put("record.key", record.key());
        columns.put("record.value", record.value());
        Header[] headers = record.headers();
        columns.put("record.headers", headers.length);
        for (Header header : headers) {
            columns.put("header.key", header.key().getBytes(StandardCharsets.UTF_8));
            columns.put("header.value", header.value());
        }
    }
}
