import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Writes and reads keys and values of coordinators with the classes that Kafka generates. A line of input is a
 * coordinator, a class, a version of it, and its JSON or its bytes in base64, with tabs between. The answer is a line: the
 * bytes, and the JSON of what the class reads of them; no JSON if it reads nothing.
 */
public class CoordinatorValues {
    private static final String GENERATED = "org.apache.kafka.coordinator.%s.generated.%s";

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", 4);
            Class<?> type = Class.forName(String.format(GENERATED, words[0], words[1]));
            Class<?> converter = Class.forName(type.getName() + "JsonConverter");
            short version = Short.parseShort(words[2]);
            byte[] bytes;
            if (words[3].startsWith("{")) {
                Method made = converter.getMethod("read", JsonNode.class, short.class);
                ApiMessage message = (ApiMessage) made.invoke(null, json.readTree(words[3]), version);
                bytes = MessageUtil.toByteBufferAccessor(message, version).buffer().array();
            } else {
                bytes = Base64.getDecoder().decode(words[3]);
            }
            String shown = "";
            try {
                ApiMessage read = (ApiMessage) type.getConstructor().newInstance();
                read.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
                shown = json.writeValueAsString(converter.getMethod("write", type, short.class).invoke(null, read, version));
            } catch (RuntimeException refused) {
                // the empty answer
            }
            out.println(Base64.getEncoder().encodeToString(bytes) + "\t" + shown);
        }
        out.flush();
    }
}
