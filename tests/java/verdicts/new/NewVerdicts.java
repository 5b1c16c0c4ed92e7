import java.util.Map;

/** What Kafka 3.9.2 does with cases. */
public final class NewVerdicts {
    public static void main(String[] args) throws Exception {
        Cases.run(Map.of("validator", new NewValidator(), "log", new NewLog()));
    }
}
