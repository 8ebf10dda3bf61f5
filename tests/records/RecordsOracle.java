// Kafka's own reader and writer of records, for tests: requests on stdin, answers on stdout, a line each, fields by tabs.
//
// Run as a source file with the jars of kafka-clients on the class path: `java -cp 'JARS/*' RecordsOracle.java`. In 4.4
// most of these classes are in another package: oracle.py changes the imports for it.
//
//   build  NAME MAGIC CODEC TIMESTAMP_TYPE BASE_OFFSET APPEND_TIME PRODUCER_ID EPOCH SEQUENCE TRANSACTIONAL LEADER,
//          then a line `record TIMESTAMP KEY VALUE HEADERS` each and a line `end`; answer: NAME HEX
//   marker NAME OFFSET TIMESTAMP PRODUCER_ID EPOCH COMMIT COORDINATOR_EPOCH; answer: NAME HEX
//   read   NAME HEX; answer: lines `batch ...` and `record ...`, then `end NAME` or `failed NAME WHY`
//   murmur2 NAME HEX; answer: NAME NUMBER
//
// Bytes are in hex, `.` if empty and `-` if null; headers are NAME=VALUE by commas, in hex too.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Utils;

public class RecordsOracle {
    static final HexFormat HEX = HexFormat.of();
    static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] field = line.split("\t", -1);
            switch (field[0]) {
                case "build" -> OUT.println(field[1] + "\t" + written(build(field, in)));
                case "marker" -> OUT.println(field[1] + "\t" + written(marker(field)));
                case "read" -> read(field[1], bytes(field[2]));
                case "murmur2" -> OUT.println(field[1] + "\t" + Utils.murmur2(bytes(field[2])));
                case "===" -> {
                    OUT.println("===");
                    OUT.flush();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    static ByteBuffer build(String[] field, BufferedReader in) throws Exception {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 20), Byte.parseByte(field[2]), Compression.of(field[3]).build(),
            field[4].equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            Long.parseLong(field[5]), Long.parseLong(field[6]), Long.parseLong(field[7]), Short.parseShort(field[8]),
            Integer.parseInt(field[9]), field[10].equals("1"), false, Integer.parseInt(field[11]));
        for (String[] f = in.readLine().split("\t", -1); f[0].equals("record"); f = in.readLine().split("\t", -1)) {
            builder.append(Long.parseLong(f[1]), bytes(f[2]), bytes(f[3]), headers(f[4]));
        }
        return builder.build().buffer();
    }

    static ByteBuffer marker(String[] field) {
        ControlRecordType type = field[6].equals("1") ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return MemoryRecords.withEndTransactionMarker(
            Long.parseLong(field[2]), Long.parseLong(field[3]), RecordBatch.NO_PARTITION_LEADER_EPOCH,
            Long.parseLong(field[4]), Short.parseShort(field[5]),
            new EndTransactionMarker(type, Integer.parseInt(field[7]))).buffer();
    }

    static void read(String name, byte[] data) {
        StringBuilder out = new StringBuilder();
        try {
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
                batch.ensureValid();
                out.append(String.join("\t", "batch", "" + batch.magic(), "" + batch.lastOffset(),
                    batch.compressionType().name, "" + batch.timestampType().id, "" + batch.maxTimestamp(),
                    "" + batch.producerId(), "" + batch.producerEpoch(), "" + batch.baseSequence(),
                    "" + batch.isTransactional(), "" + batch.isControlBatch(), "" + batch.partitionLeaderEpoch()));
                out.append('\n');
                for (Record record : batch) {
                    record.ensureValid();
                    out.append(String.join("\t", "record", "" + record.offset(), "" + record.timestamp(),
                        written(record.key()), written(record.value()), listed(record.headers())));
                    out.append('\n');
                }
            }
            OUT.println(out + "end\t" + name);
        } catch (Exception e) {
            OUT.println("failed\t" + name + "\t" + e);
        }
    }

    static byte[] bytes(String text) {
        return text.equals("-") ? null : text.equals(".") ? new byte[0] : HEX.parseHex(text);
    }

    static Header[] headers(String text) {
        if (text.isEmpty()) {
            return new Header[0];
        }
        String[] pairs = text.split(",");
        Header[] headers = new Header[pairs.length];
        for (int i = 0; i < pairs.length; i++) {
            String[] pair = pairs[i].split("=");
            headers[i] = new RecordHeader(new String(bytes(pair[0]), StandardCharsets.UTF_8), bytes(pair[1]));
        }
        return headers;
    }

    static String written(ByteBuffer buffer) {
        if (buffer == null) {
            return "-";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return written(bytes);
    }

    static String written(byte[] bytes) {
        return bytes == null ? "-" : bytes.length == 0 ? "." : HEX.formatHex(bytes);
    }

    static String listed(Header[] headers) {
        String[] pairs = new String[headers.length];
        for (int i = 0; i < headers.length; i++) {
            pairs[i] = written(headers[i].key().getBytes(StandardCharsets.UTF_8)) + "=" + written(headers[i].value());
        }
        return String.join(",", pairs);
    }
}
