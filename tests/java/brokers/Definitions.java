import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints a broker's settings, one a line: name, type, default, limits, whether it is internal, between tabs. */
public class Definitions {
    public static void main(String[] arguments) throws ReflectiveOperationException {
        ConfigDef all;
        try { // 4.x
            all = (ConfigDef) Class.forName("org.apache.kafka.server.config.AbstractKafkaConfig").getField("CONFIG_DEF").get(null);
        } catch (NoSuchFieldException e) {
            all = (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null);
        }
        for (ConfigDef.ConfigKey key : new TreeMap<>(all.configKeys()).values()) {
            System.out.println(String.join("\t", key.name, key.type.toString(), String.valueOf(key.defaultValue),
                String.valueOf(key.validator), String.valueOf(key.internalConfig)));
        }
    }
}
