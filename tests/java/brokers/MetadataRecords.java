import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriter;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * What Kafka's own classes make of records of the metadata log, and what a broker says of its cluster.
 *
 * <p>Each line of standard input is a JSON object, {@code do} says what; each is answered by one line, with
 * {@code error} where it failed. Bytes are base64. It ends with its input.
 */
public final class MetadataRecords {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Throwable failed) {
                answer.put("error", (failed instanceof ExecutionException ? failed.getCause() : failed).toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    private static void answer(JsonNode asked, ObjectNode answer) throws Exception {
        switch (asked.get("do").asText()) {
            case "records" -> records(asked, answer.putArray("records"));
            case "image" -> image(asked, answer.putArray("records"));
            case "write" -> write(asked, answer);
            case "describe" -> describe(asked, answer);
            case "names" -> names(answer);
            default -> throw new IllegalArgumentException("unknown: " + asked);
        }
    }

    /** Kafka's names by their numbers. */
    private static void names(ObjectNode answer) {
        ObjectNode made = answer.putObject("ConfigResource");
        for (ConfigResource.Type each : ConfigResource.Type.values()) {
            made.put(String.valueOf(each.id()), each.name());
        }
        made = answer.putObject("ResourceType");
        for (ResourceType each : ResourceType.values()) {
            made.put(String.valueOf(each.code()), each.name());
        }
        made = answer.putObject("PatternType");
        for (PatternType each : PatternType.values()) {
            made.put(String.valueOf(each.code()), each.name());
        }
        made = answer.putObject("AclOperation");
        for (AclOperation each : AclOperation.values()) {
            made.put(String.valueOf(each.code()), each.name());
        }
        made = answer.putObject("AclPermissionType");
        for (AclPermissionType each : AclPermissionType.values()) {
            made.put(String.valueOf(each.code()), each.name());
        }
        made = answer.putObject("ScramMechanism");
        for (ScramMechanism each : ScramMechanism.values()) {
            made.put(String.valueOf(each.type()), each.mechanismName());
        }
        made = answer.putObject("SecurityProtocol");
        for (SecurityProtocol each : SecurityProtocol.values()) {
            made.put(String.valueOf(each.id), each.name());
        }
    }

    private static void add(ArrayNode into, ApiMessageAndVersion record) {
        ObjectNode made = into.addObject().put("version", record.version()).put("apiKey", record.message().apiKey());
        made.set("data", MetadataJsonConverters.writeJson(record.message(), record.version()));
    }

    private static ApiMessageAndVersion read(JsonNode value) throws Exception {
        ByteBuffer bytes = ByteBuffer.wrap(value.binaryValue());
        return new MetadataRecordSerde().read(new ByteBufferAccessor(bytes), bytes.remaining());
    }

    /** Each of {@code values}. */
    private static void records(JsonNode asked, ArrayNode into) throws Exception {
        for (JsonNode value : asked.get("values")) {
            add(into, read(value));
        }
    }

    /** The values of {@code batches} as Kafka's image. */
    private static void image(JsonNode asked, ArrayNode into) throws Exception {
        MetadataImage image = MetadataImage.EMPTY;
        List<ApiMessage> waiting = null; // of a metadata transaction
        for (JsonNode batch : asked.get("batches")) {
            // A delta for each, as of a broker that follows: one of a whole log keeps settings of deleted topics.
            MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
            for (JsonNode value : batch) {
                ApiMessage message = read(value).message();
                switch (MetadataRecordType.fromId(message.apiKey())) {
                    case NO_OP_RECORD -> { }
                    case BEGIN_TRANSACTION_RECORD -> waiting = new ArrayList<>();
                    case ABORT_TRANSACTION_RECORD -> waiting = null;
                    case END_TRANSACTION_RECORD -> {
                        waiting.forEach(delta::replay);
                        waiting = null;
                    }
                    default -> {
                        if (waiting == null) {
                            delta.replay(message);
                        } else {
                            waiting.add(message);
                        }
                    }
                }
            }
            image = delta.apply(MetadataProvenance.EMPTY);
        }
        image.write(new ImageWriter() {
            @Override
            public void write(ApiMessageAndVersion record) {
                add(into, record);
            }

            @Override
            public void close(boolean complete) { }
        }, new ImageWriterOptions.Builder(image).build());
    }

    /** A record of {@code data} as a value of the log. */
    private static void write(JsonNode asked, ObjectNode answer) throws Exception {
        short version = (short) asked.get("version").asInt();
        ApiMessage message =
            MetadataJsonConverters.readJson(asked.get("data"), (short) asked.get("apiKey").asInt(), version);
        ApiMessageAndVersion record = new ApiMessageAndVersion(message, version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        MetadataRecordSerde serde = new MetadataRecordSerde();
        ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(record, cache));
        serde.write(record, cache, new ByteBufferAccessor(buffer));
        answer.put("bytes", Base64.getEncoder().encodeToString(Arrays.copyOf(buffer.array(), buffer.position())));
        answer.set("data", MetadataJsonConverters.writeJson(message, version));
    }

    /** What the broker at {@code bootstrap} says of its cluster. */
    private static void describe(JsonNode asked, ObjectNode answer) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", asked.get("bootstrap").asText()))) {
            answer.put("clusterId", admin.describeCluster().clusterId().get());
            answer.put("logEndOffset", admin.describeMetadataQuorum().quorumInfo().get().voters().get(0).logEndOffset());
            ArrayNode brokers = answer.putArray("brokers");
            for (Node node : admin.describeCluster().nodes().get()) {
                brokers.addObject().put("id", node.id()).put("host", node.host()).put("port", node.port());
            }
            ObjectNode features = answer.putObject("features");
            admin.describeFeatures().featureMetadata().get().finalizedFeatures()
                .forEach((name, range) -> features.put(name, range.maxVersionLevel()));
            ObjectNode topics = answer.putObject("topics");
            List<ConfigResource> resources = new ArrayList<>();
            admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get().forEach((name, topic) -> {
                resources.add(new ConfigResource(ConfigResource.Type.TOPIC, name));
                ObjectNode made = topics.putObject(name).put("id", topic.topicId().toString());
                ArrayNode partitions = made.putArray("partitions");
                topic.partitions().forEach(each -> {
                    ObjectNode partition = partitions.addObject().put("partition", each.partition());
                    partition.put("leader", each.leader() == null ? -1 : each.leader().id());
                    each.replicas().forEach(node -> partition.withArray("replicas").add(node.id()));
                    each.isr().forEach(node -> partition.withArray("isr").add(node.id()));
                });
            });
            resources.add(new ConfigResource(ConfigResource.Type.BROKER, "1"));
            resources.add(new ConfigResource(ConfigResource.Type.BROKER, ""));
            ArrayNode configs = answer.putArray("configs");
            admin.describeConfigs(resources).all().get().forEach((resource, config) -> {
                String own = switch (resource.type()) {
                    case TOPIC -> "DYNAMIC_TOPIC_CONFIG";
                    default -> resource.isDefault() ? "DYNAMIC_DEFAULT_BROKER_CONFIG" : "DYNAMIC_BROKER_CONFIG";
                };
                for (ConfigEntry entry : config.entries()) {
                    if (entry.source().name().equals(own)) {
                        configs.addObject().put("type", resource.type().name()).put("name", resource.name())
                            .put("key", entry.name()).put("value", entry.value());
                    }
                }
            });
            ArrayNode quotas = answer.putArray("quotas");
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, values) -> {
                ObjectNode made = quotas.addObject();
                made.set("entity", JSON.valueToTree(entity.entries()));
                made.set("values", JSON.valueToTree(values));
            });
            ArrayNode users = answer.putArray("users");
            admin.describeUserScramCredentials().all().get().forEach((name, user) ->
                user.credentialInfos().forEach(info -> users.addObject().put("name", name)
                    .put("mechanism", info.mechanism().mechanismName()).put("iterations", info.iterations())));
            ArrayNode acls = answer.putArray("acls");
            admin.describeAcls(AclBindingFilter.ANY).values().get().forEach(acl ->
                acls.addObject().put("resourceType", acl.pattern().resourceType().name())
                    .put("resourceName", acl.pattern().name()).put("patternType", acl.pattern().patternType().name())
                    .put("principal", acl.entry().principal()).put("host", acl.entry().host())
                    .put("operation", acl.entry().operation().name())
                    .put("permissionType", acl.entry().permissionType().name()));
        }
    }
}
