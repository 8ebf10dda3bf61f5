import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.transaction.TransactionCoordinatorRecordSerde;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.serialization.AbstractApiMessageSerde;

/**
 * How Kafka's coordinators and controllers read the records of their topics, and write them again, as a filter of lines.
 *
 * A line in is "topic TAB key TAB value", in hex, "-" for none; the line out is "ok TAB key TAB value TAB class of key TAB
 * class of value TAB version of value", or "error TAB reason". The line "===" is answered by itself, when all before it are.
 */
public class RecordOracle {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("===")) {
                out.print("===\n");
                out.flush();
                continue;
            }
            String[] question = line.split("\t");
            try {
                out.print("ok\t" + answer(question[0], bytes(question[1]), bytes(question[2])) + "\n");
            } catch (RuntimeException error) {
                out.print("error\t" + String.valueOf(error).replaceAll("\\s+", " ") + "\n");
            }
        }
    }

    private static String answer(String topic, ByteBuffer key, ByteBuffer value) {
        switch (topic) {
            case "__consumer_offsets": return coordinator(new GroupCoordinatorRecordSerde(), key, value);
            case "__transaction_state": return coordinator(new TransactionCoordinatorRecordSerde(), key, value);
            case "__share_group_state": return coordinator(new ShareCoordinatorRecordSerde(), key, value);
            case "__cluster_metadata": return framed(new MetadataRecordSerde(), value);
            case "__remote_log_metadata": return framed(new RemoteLogSerde(), value);
            default: throw new IllegalArgumentException(topic);
        }
    }

    private static String coordinator(CoordinatorRecordSerde serde, ByteBuffer key, ByteBuffer value) {
        CoordinatorRecord record = serde.deserialize(key, value);
        byte[] again = serde.serializeValue(record);
        return hex(serde.serializeKey(record)) + "\t" + (again == null ? "-" : hex(again))
            + "\t" + name(record.key()) + "\t" + description(record.value());
    }

    private static String framed(AbstractApiMessageSerde serde, ByteBuffer value) {
        ApiMessageAndVersion record = serde.read(new ByteBufferAccessor(value), value.remaining());
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer again = ByteBuffer.allocate(serde.recordSize(record, cache));
        serde.write(record, cache, new ByteBufferAccessor(again));
        return "-\t" + hex(again.array()) + "\t-\t" + description(record);
    }

    private static String description(ApiMessageAndVersion value) {
        return value == null ? "-\t0" : name(value.message()) + "\t" + value.version();
    }

    private static String name(ApiMessage message) {
        return message.getClass().getSimpleName();
    }

    private static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    private static ByteBuffer bytes(String text) {
        return text.equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(text));
    }

    /** Kafka's own serde of this topic reads objects of its domain, of which not every message makes one. */
    private static final class RemoteLogSerde extends AbstractApiMessageSerde {
        @Override
        public ApiMessage apiMessageFor(short apiKey) {
            return org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataRecordType
                .fromId(apiKey).newMetadataRecord();
        }
    }
}
