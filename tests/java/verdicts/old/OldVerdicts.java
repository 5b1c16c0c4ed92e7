import java.util.HashMap;
import java.util.Map;

/** What Kafka 0.10.2.2 does with cases. */
public final class OldVerdicts {
    public static void main(String[] args) throws Exception {
        Map<String, Cases.Family> families = new HashMap<>();
        families.put("validator", new OldValidator());
        families.put("log", new OldLog());
        Cases.run(families);
    }
}
