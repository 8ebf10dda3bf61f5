import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.internals.AcknowledgementBatch;
import org.apache.kafka.clients.consumer.internals.Acknowledgements;

/** Reads lines of "offset:type,offset:type" in ascending order; writes Kafka's batches as "first-last:types|...". */
public class AcknowledgementsOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("===")) {
                System.out.println(line);
                System.out.flush();
                continue;
            }
            Acknowledgements acknowledgements = Acknowledgements.empty();
            for (String pair : line.split(",")) {
                String[] parts = pair.split(":");
                long offset = Long.parseLong(parts[0]);
                byte type = Byte.parseByte(parts[1]);
                if (type == 0) {
                    acknowledgements.addGap(offset);
                } else {
                    acknowledgements.add(offset, AcknowledgeType.forId(type));
                }
            }
            StringJoiner batches = new StringJoiner("|");
            for (AcknowledgementBatch batch : acknowledgements.getAcknowledgementBatches()) {
                StringJoiner types = new StringJoiner(",");
                batch.acknowledgeTypes().forEach(type -> types.add(type.toString()));
                batches.add(batch.firstOffset() + "-" + batch.lastOffset() + ":" + types);
            }
            System.out.println(batches);
        }
    }
}
