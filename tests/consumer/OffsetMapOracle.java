import io.confluent.parallelconsumer.offsets.OffsetEncoding;
import io.confluent.parallelconsumer.offsets.OffsetMapCodecManager;
import io.confluent.parallelconsumer.offsets.OffsetMapCodecManager.HighestOffsetAndIncompletes;
import io.confluent.parallelconsumer.offsets.OffsetSimultaneousEncoder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeSet;

/**
 * The offset maps of Confluent's Parallel Consumer, as a filter of lines.
 *
 * "decode TAB base TAB metadata" is followed by "ok TAB highest TAB incomplete offsets, with commas".
 * "encode TAB base TAB highest TAB incomplete offsets" is followed by "ok TAB best TAB name=metadata ...", one for each
 * encoding. An exception is "error TAB reason". The line "===" is the response to itself.
 */
public class OffsetMapOracle {
    public static void main(String[] args) throws Exception {
        OffsetSimultaneousEncoder.compressionForced = true;
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("===")) {
                out.print("===\n");
                out.flush();
                continue;
            }
            String[] question = line.split("\t", -1);
            try {
                out.print("ok\t" + (question[0].equals("decode") ? decode(question) : encode(question)) + "\n");
            } catch (Throwable e) {
                out.print("error\t" + e.toString().replace('\n', ' ') + "\n");
            }
        }
    }

    private static String decode(String[] question) throws Exception {
        HighestOffsetAndIncompletes read = OffsetMapCodecManager
            .deserialiseIncompleteOffsetMapFromBase64(Long.parseLong(question[1]), question[2]);
        StringBuilder offsets = new StringBuilder();
        for (Long offset : read.getIncompleteOffsets())
            offsets.append(offsets.length() == 0 ? "" : ",").append(offset);
        return read.getHighestSeenOffset().get() + "\t" + offsets;
    }

    private static String encode(String[] question) throws Exception {
        TreeSet<Long> incomplete = new TreeSet<>();
        for (String offset : question[3].split(","))
            if (!offset.isEmpty())
                incomplete.add(Long.parseLong(offset));
        OffsetSimultaneousEncoder encoder = new OffsetSimultaneousEncoder(
            Long.parseLong(question[1]), Long.parseLong(question[2]), incomplete).invoke();
        StringBuilder line = new StringBuilder(Base64.getEncoder().encodeToString(encoder.packSmallest())).append('\t');
        for (Map.Entry<OffsetEncoding, byte[]> each : encoder.getEncodingMap().entrySet()) {
            byte[] whole = new byte[1 + each.getValue().length];
            whole[0] = each.getKey().magicByte;
            System.arraycopy(each.getValue(), 0, whole, 1, each.getValue().length);
            line.append(each.getKey().name()).append('=').append(Base64.getEncoder().encodeToString(whole)).append(' ');
        }
        return line.toString();
    }
}
