import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Named columns that grow at their ends: of 64-bit numbers, and of byte strings (a column of lengths, -1 for null, and
 * one named {@code .data}). What was put since the last {@code keep} can be taken back.
 */
final class Columns {
    private static final class Column extends ByteArrayOutputStream {
        private int kept;

        void put(long value) {
            for (int shift = 56; shift >= 0; shift -= 8) {
                write((int) (value >>> shift));
            }
        }

        void keep() {
            kept = count;
        }

        void undo() {
            count = kept;
        }
    }

    private final Map<String, Column> columns = new LinkedHashMap<>();

    private Column column(String name) {
        return columns.computeIfAbsent(name, any -> new Column());
    }

    void put(String name, long value) {
        column(name).put(value);
    }

    void put(String name, boolean value) {
        put(name, value ? 1 : 0);
    }

    void put(String name, byte[] bytes) {
        put(name, bytes == null ? null : ByteBuffer.wrap(bytes));
    }

    void put(String name, ByteBuffer bytes) {
        put(name, bytes == null ? -1 : bytes.remaining());
        Column data = column(name + ".data");
        if (bytes != null) {
            byte[] copy = new byte[bytes.remaining()];
            bytes.duplicate().get(copy);
            data.write(copy, 0, copy.length);
        }
    }

    void keep() {
        columns.values().forEach(Column::keep);
    }

    void undo() {
        columns.values().forEach(Column::undo);
    }

    /** Every column: its name, its length in bytes, its bytes; numbers are big-endian. */
    void writeTo(OutputStream target) throws IOException {
        DataOutputStream out = new DataOutputStream(target);
        for (Map.Entry<String, Column> each : columns.entrySet()) {
            out.writeUTF(each.getKey());
            out.writeInt(each.getValue().size());
            each.getValue().writeTo(out);
        }
        out.flush();
    }
}
