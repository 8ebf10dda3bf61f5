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
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors and ConsumerProtocol, as a filter of lines.
 *
 * A line in is JSON: {"assignor": name, "topics": {topic: [[rack, ...], ...]}, "members": {id: {"topics": [...],
 * "instance": null or id, "rack": null or rack, "owned": [[topic, partition], ...], "generation": -1, "userData": null
 * or hex}}}. The line out is {"assignment": {id: [[topic, partition], ...]}, "assignmentBytes": {id: hex},
 * "subscriptionBytes": {id: hex}, "nextUserData": {id: hex}}, the last after the assignment in generation 7; or
 * {"error": reason}. The line "===" is the response to itself.
 */
public class AssignorOracle {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("===")) {
                out.print("===\n");
                out.flush();
                continue;
            }
            ObjectNode response = MAPPER.createObjectNode();
            try {
                assign(MAPPER.readTree(line), response);
            } catch (Exception e) {
                response.removeAll();
                response.put("error", e.toString());
            }
            out.print(MAPPER.writeValueAsString(response) + "\n");
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static void assign(JsonNode question, ObjectNode response) {
        String name = question.get("assignor").asText();
        ObjectNode subscriptionBytes = response.putObject("subscriptionBytes");
        Map<String, Subscription> subscriptions = new LinkedHashMap<>();
        question.get("members").fields().forEachRemaining(member -> {
            Subscription subscription = subscription(member.getValue());
            subscriptions.put(member.getKey(), subscription);
            subscriptionBytes.put(member.getKey(), hex(ConsumerProtocol.serializeSubscription(subscription)));
        });
        Map<String, Assignment> assignments = assignor(name)
            .assign(cluster(question.get("topics")), new GroupSubscription(subscriptions)).groupAssignment();
        ObjectNode assignment = response.putObject("assignment");
        ObjectNode assignmentBytes = response.putObject("assignmentBytes");
        ObjectNode nextUserData = response.putObject("nextUserData");
        new TreeMap<>(assignments).forEach((id, given) -> {
            ArrayNode partitions = assignment.putArray(id);
            given.partitions().forEach(tp -> partitions.addArray().add(tp.topic()).add(tp.partition()));
            assignmentBytes.put(id, hex(ConsumerProtocol.serializeAssignment(given)));
            ConsumerPartitionAssignor members = assignor(name);
            members.onAssignment(given, new ConsumerGroupMetadata("g", 7, id, Optional.empty()));
            nextUserData.put(id, hex(members.subscriptionUserData(new HashSet<>(subscriptions.get(id).topics()))));
        });
    }

    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int index = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks)
                    replicas.add(nodes.computeIfAbsent(rack.asText(), r -> new Node(nodes.size(), "h", 1, r)));
                Node[] all = replicas.toArray(new Node[0]);
                Node leader = all.length == 0 ? Node.noNode() : all[0];
                partitions.add(new PartitionInfo(topic.getKey(), index++, leader, all, all));
            }
        });
        return new Cluster("c", nodes.values(), partitions, Set.of(), Set.of());
    }

    private static Subscription subscription(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned").forEach(tp -> owned.add(new TopicPartition(tp.get(0).asText(), tp.get(1).asInt())));
        ByteBuffer userData = member.hasNonNull("userData")
            ? ByteBuffer.wrap(HexFormat.of().parseHex(member.get("userData").asText())) : null;
        Optional<String> rack = member.hasNonNull("rack") ? Optional.of(member.get("rack").asText()) : Optional.empty();
        Subscription subscription =
            new Subscription(topics, userData, owned, member.get("generation").asInt(), rack);
        if (member.hasNonNull("instance"))
            subscription.setGroupInstanceId(Optional.of(member.get("instance").asText()));
        return subscription;
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
