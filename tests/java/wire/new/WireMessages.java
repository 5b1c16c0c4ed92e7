import com.fasterxml.jackson.databind.JsonNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedOutputStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with the classes that Kafka generates, and says what it read.
 *
 * stdin: size int32, then kind int8 (0 request, 1 response, +2: no message comes, the class's defaults are asked for),
 * api key int16, version int16, the frame. stdout, for each: the frame as Kafka writes it again, and the body as JSON,
 * each behind its size; a size of -1 and an error text if Kafka cannot read it or has no such version.
 */
public class WireMessages {
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
            byte kind = item.get();
            short key = item.getShort();
            short version = item.getShort();
            byte[] written;
            byte[] json;
            try {
                ApiMessageType type = ApiMessageType.fromApiKey(key);
                boolean response = (kind & 1) == 1;
                ApiMessage body = response ? type.newResponse() : type.newRequest();
                if (version < body.lowestSupportedVersion() || version > body.highestSupportedVersion())
                    throw new IllegalArgumentException("no such version");
                Message header = null;
                short headerVersion = response ? type.responseHeaderVersion(version) : type.requestHeaderVersion(version);
                if (kind < 2) {
                    ByteBuffer frame = item.slice();
                    ByteBufferAccessor accessor = new ByteBufferAccessor(frame);
                    header = response
                        ? new ResponseHeaderData(accessor, headerVersion)
                        : new RequestHeaderData(accessor, headerVersion);
                    body.read(accessor, version);
                    if (frame.hasRemaining())
                        throw new IllegalStateException(frame.remaining() + " bytes left");
                }
                ObjectSerializationCache cache = new ObjectSerializationCache();
                int headerSize = header == null ? 0 : header.size(cache, headerVersion);
                ByteBuffer again = ByteBuffer.allocate(headerSize + body.size(cache, version));
                ByteBufferAccessor writer = new ByteBufferAccessor(again);
                if (header != null)
                    header.write(writer, cache, headerVersion);
                body.write(writer, cache, version);
                written = again.array();
                json = json(body, version).toString().getBytes(StandardCharsets.UTF_8);
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

    private static JsonNode json(ApiMessage body, short version) throws Exception {
        Class<?> converter = Class.forName(body.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", body.getClass(), short.class);
        return (JsonNode) write.invoke(null, body, version);
    }
}
