import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/** Reads {"family", "in"} lines of the recorded verdicts' form and answers each with its "out", a line each. */
final class Cases {
    static final ObjectMapper JSON = new ObjectMapper();

    /** What Kafka's classes do with one case. */
    interface Family {
        void answer(JsonNode in, ObjectNode out) throws Throwable;
    }

    private static final List<Path> TEMPORARY = new ArrayList<>();

    /** A folder that goes with the program. */
    static Path folder() throws IOException {
        Path folder = Files.createTempDirectory("verdicts");
        TEMPORARY.add(folder);
        return folder;
    }

    static void run(Map<String, Family> families) throws Exception {
        PrintStream stdout = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever Kafka prints
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        for (String line; (line = lines.readLine()) != null; ) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode out = JSON.createObjectNode();
            try {
                families.get(asked.get("family").asText()).answer(asked.get("in"), out);
            } catch (Throwable t) {
                out.put("harness", t.toString() + " at " + Arrays.toString(t.getStackTrace()));
            }
            stdout.println(JSON.writeValueAsString(out));
        }
        stdout.flush();
        for (Path folder : TEMPORARY) {
            delete(folder);
        }
        System.exit(0);
    }

    static byte[] bytes(JsonNode holder, String name) {
        return Base64.getDecoder().decode(holder.get(name).asText());
    }

    static String text(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }

    static String text(ByteBuffer buffer) {
        return text(copy(buffer));
    }

    static byte[] copy(ByteBuffer buffer) {
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    static String sha1(byte[] data) throws Exception {
        return text(Arrays.copyOf(MessageDigest.getInstance("SHA-1").digest(data), 8));
    }

    static long number(JsonNode in, String name, long otherwise) {
        return in.has(name) ? in.get(name).asLong() : otherwise;
    }

    static Throwable thrown(Throwable t) {
        return t instanceof InvocationTargetException ? t.getCause() : t;
    }

    static ObjectNode error(Throwable t) {
        ObjectNode error = JSON.createObjectNode();
        error.put("class", t.getClass().getName());
        error.put("message", String.valueOf(t.getMessage()));
        return error;
    }

    static ArrayNode list(Object... values) {
        ArrayNode list = JSON.createArrayNode();
        for (Object value : values) {
            list.addPOJO(value);
        }
        return list;
    }

    static void delete(Path folder) throws IOException {
        Files.walkFileTree(folder, new SimpleFileVisitor<Path>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path each, IOException failed) throws IOException {
                Files.delete(each);
                return FileVisitResult.CONTINUE;
            }
        });
    }

    /** Changes the files of a closed log or segment as a case's "damage" says. */
    static void damage(Path file, JsonNode how) throws IOException {
        if (how.get("op").asText().equals("delete")) {
            Files.deleteIfExists(file); // 3.9 makes indexes when it is first asked for them
            return;
        }
        byte[] data = Files.readAllBytes(file);
        switch (how.get("op").asText()) {
            case "cut":
                data = Arrays.copyOf(data, Math.max(data.length - how.get("n").asInt(), 0));
                break;
            case "zeros":
                data = Arrays.copyOf(data, data.length + how.get("n").asInt());
                break;
            case "append":
                byte[] more = bytes(how, "data");
                data = Arrays.copyOf(data, data.length + more.length);
                System.arraycopy(more, 0, data, data.length - more.length, more.length);
                break;
            case "flip":
                if (data.length > 0) {
                    data[how.get("at").asInt() % data.length] ^= (byte) how.get("mask").asInt();
                }
                break;
            default:
                throw new IllegalArgumentException(how.toString());
        }
        Files.write(file, data);
    }
}
