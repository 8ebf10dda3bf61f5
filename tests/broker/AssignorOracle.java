import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Kafka's server assignors and RE2/J, asked line by line in JSON: see test_assignors and test_re2. */
public class AssignorOracle {
    record Describer(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
        public int numPartitions(Uuid topic) { return counts.getOrDefault(topic, -1); }
        public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
    }

    static JsonNode assign(ObjectMapper json, JsonNode asked) {
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("counts").fields().forEachRemaining(e -> counts.put(Uuid.fromString(e.getKey()), e.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        asked.get("members").fields().forEachRemaining(e -> {
            Set<Uuid> topics = new HashSet<>();
            e.getValue().get("topics").forEach(t -> topics.add(Uuid.fromString(t.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            e.getValue().get("assigned").forEach(p -> {
                Uuid topic = Uuid.fromString(p.get(0).asText());
                assigned.computeIfAbsent(topic, k -> new HashSet<>()).add(p.get(1).asInt());
                owners.computeIfAbsent(topic, k -> new HashMap<>()).put(p.get(1).asInt(), e.getKey());
            });
            JsonNode instance = e.getValue().get("instance");
            members.put(e.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance.isNull() ? Optional.empty() : Optional.of(instance.asText()), topics,
                new Assignment(assigned)));
        });
        ConsumerGroupPartitionAssignor assignor =
            asked.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = subscriptions.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        var result = assignor.assign(new GroupSpecImpl(members, type, owners), new Describer(counts)).members();
        ObjectNode answer = json.createObjectNode();
        members.keySet().forEach(id -> {
            ArrayNode parts = answer.putArray(id);
            if (result.containsKey(id))
                result.get(id).partitions().forEach((topic, numbers) -> numbers.forEach(number ->
                    parts.addArray().add(topic.toString()).add(number)));
        });
        return answer;
    }

    static JsonNode match(ObjectMapper json, JsonNode asked) {
        ArrayNode answer = json.createArrayNode();
        try {
            Pattern pattern = Pattern.compile(asked.get("pattern").asText());
            asked.get("texts").forEach(text -> answer.add(pattern.matcher(text.asText()).matches()));
            return answer;
        } catch (PatternSyntaxException error) {
            return json.getNodeFactory().textNode(error.getMessage());
        }
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = in.readLine()) != null) {
            if (line.equals("===")) {
                System.out.println(line);
                System.out.flush();
                continue;
            }
            JsonNode asked = json.readTree(line);
            System.out.println(json.writeValueAsString(asked.has("pattern") ? match(json, asked) : assign(json, asked)));
        }
    }
}
