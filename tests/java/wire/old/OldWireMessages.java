import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.lang.reflect.Array;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.protocol.ProtoUtils;
import org.apache.kafka.common.protocol.Protocol;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;

/**
 * Reads messages by the hand-written layouts of Kafka 0.10.2, and says what it read, like WireMessages but for one thing:
 * the JSON has the values alone, in their order, a struct being a list. Bytes and records are their hexadecimal digits.
 */
public class OldWireMessages {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        byte[] all = in.readAllBytes();
        ByteBuffer items = ByteBuffer.wrap(all);
        while (items.hasRemaining()) {
            int size = items.getInt();
            ByteBuffer item = items.slice();
            item.limit(size);
            items.position(items.position() + size);
            boolean response = item.get() == 1;
            short key = item.getShort();
            short version = item.getShort();
            ByteBuffer frame = item.slice();
            byte[] written;
            byte[] json;
            try {
                Schema head = response ? Protocol.RESPONSE_HEADER : Protocol.REQUEST_HEADER;
                Schema schema = response ? ProtoUtils.responseSchema(key, version) : ProtoUtils.requestSchema(key, version);
                Struct header = head.read(frame);
                Struct body = schema.read(frame);
                if (frame.hasRemaining())
                    throw new IllegalStateException(frame.remaining() + " bytes left");
                ByteBuffer again = ByteBuffer.allocate(header.sizeOf() + body.sizeOf());
                header.writeTo(again);
                body.writeTo(again);
                written = again.array();
                StringBuilder text = new StringBuilder();
                append(text, body);
                json = text.toString().getBytes(StandardCharsets.UTF_8);
            } catch (Exception error) {
                out.writeInt(-1);
                byte[] text = error.toString().getBytes(StandardCharsets.UTF_8);
                out.writeInt(text.length);
                out.write(text);
                continue;
            }
            out.writeInt(written.length);
            out.write(written);
            out.writeInt(json.length);
            out.write(json);
        }
        out.flush();
    }

    private static void append(StringBuilder text, Object value) {
        if (value == null) {
            text.append("null");
        } else if (value instanceof Struct) {
            String between = "[";
            for (Field field : ((Struct) value).schema().fields()) {
                text.append(between);
                append(text, ((Struct) value).get(field));
                between = ",";
            }
            text.append(between.equals("[") ? "[]" : "]");
        } else if (value.getClass().isArray()) {
            text.append('[');
            for (int i = 0; i < Array.getLength(value); i++) {
                text.append(i == 0 ? "" : ",");
                append(text, Array.get(value, i));
            }
            text.append(']');
        } else if (value instanceof String) {
            text.append('"').append(hex(((String) value).getBytes(StandardCharsets.UTF_8))).append('"');
        } else if (value instanceof ByteBuffer) {
            ByteBuffer view = ((ByteBuffer) value).duplicate();
            byte[] bytes = new byte[view.remaining()];
            view.get(bytes);
            text.append('"').append(hex(bytes)).append('"');
        } else if (value instanceof org.apache.kafka.common.record.MemoryRecords) {
            append(text, ((org.apache.kafka.common.record.MemoryRecords) value).buffer());
        } else {
            text.append(value);
        }
    }

    private static String hex(byte[] bytes) {
        StringBuilder digits = new StringBuilder();
        for (byte each : bytes)
            digits.append(String.format("%02x", each));
        return digits.toString();
    }
}
