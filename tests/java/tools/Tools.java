import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Scanner;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs command line tools of Kafka one after the other in one process. A line of input is a class and its arguments,
 * with tabs between; the answer is a line: the exit code, and what was printed, in base64.
 */
public class Tools {
    static final class Exited extends RuntimeException {
        final int code;

        Exited(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    private static Integer exited; // the first exit of a tool: some catch everything, and exit again

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        Exit.Procedure exit = (code, message) -> {
            exited = exited == null ? code : exited;
            PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
            System.setOut(nowhere);
            System.setErr(nowhere);
            throw new Exited(code);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split("\t", -1);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream captured = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(captured);
            System.setErr(captured);
            exited = null;
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length), captured);
            out.println((exited == null ? code : exited) + "\t" + Base64.getEncoder().encodeToString(said.toByteArray()));
            out.flush();
        }
    }

    private static int run(String name, String[] arguments, PrintStream captured) throws Exception {
        try {
            // Scala's tools print by a stream of their own
            Object[] ignored = {arguments};
            scala.Console$.MODULE$.withOut(captured, () -> scala.Console$.MODULE$.withErr(captured, () -> {
                try {
                    Class.forName(name).getMethod("main", String[].class).invoke(null, ignored);
                } catch (InvocationTargetException error) {
                    throw unchecked(error.getCause());
                } catch (ReflectiveOperationException error) {
                    throw new IllegalStateException(error);
                }
                return null;
            }));
            return 0;
        } catch (Exited error) {
            return error.code;
        } catch (Throwable error) {
            error.printStackTrace(captured);
            return 1;
        }
    }

    private static RuntimeException unchecked(Throwable error) {
        if (error instanceof Error) {
            throw (Error) error;
        }
        return error instanceof RuntimeException ? (RuntimeException) error : new RuntimeException(error);
    }
}
