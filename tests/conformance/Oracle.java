import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Kafka's own message classes and JSON converters, as a filter of lines.
 *
 * A line in is "json TAB class TAB version TAB text" or "bytes TAB class TAB version TAB hex"; the line out is
 * "ok TAB hex TAB text", or "error TAB reason". Each line is read into a message, which is then written both ways.
 * "header TAB api key TAB version TAB" asks for the versions of its headers: "ok TAB request's TAB response's".
 * The line "===" is answered by itself, when all before it are. Classes go by their full names. Run with Kafka's jars and Jackson on the class path: java -cp 'jars/*' Oracle.java
 */
public class Oracle {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("===")) {
                out.print("===\n");
                out.flush();
            } else {
                out.print(answer(line.split("\t", 4)) + "\n");
            }
        }
    }

    private static String answer(String[] question) {
        try {
            if (question[0].equals("header")) {
                ApiMessageType api = ApiMessageType.fromApiKey(Short.parseShort(question[1]));
                short version = Short.parseShort(question[2]);
                return "ok\t" + api.requestHeaderVersion(version) + "\t" + api.responseHeaderVersion(version);
            }
            Class<?> type = Class.forName(question[1]);
            short version = Short.parseShort(question[2]);
            Message message = question[0].equals("json")
                ? fromJson(type, version, question[3])
                : fromBytes(type, version, HexFormat.of().parseHex(question[3]));
            // Bytes first: writing JSON steps over the buffers of records.
            String bytes = HexFormat.of().formatHex(toBytes(message, version));
            return "ok\t" + bytes + "\t" + toJson(type, version, message);
        } catch (InvocationTargetException error) {
            return "error\t" + oneLine(error.getCause());
        } catch (Exception error) {
            return "error\t" + oneLine(error);
        }
    }

    private static Message fromJson(Class<?> type, short version, String text) throws Exception {
        return (Message) converter(type).getMethod("read", JsonNode.class, short.class)
            .invoke(null, MAPPER.readTree(text), version);
    }

    private static String toJson(Class<?> type, short version, Message message) throws Exception {
        Object node = converter(type).getMethod("write", type, short.class).invoke(null, message, version);
        return MAPPER.writeValueAsString(node);
    }

    private static Message fromBytes(Class<?> type, short version, byte[] data) throws Exception {
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(data);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalArgumentException(buffer.remaining() + " bytes are left over");
        }
        return message;
    }

    private static byte[] toBytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static Class<?> converter(Class<?> type) throws ClassNotFoundException {
        return Class.forName(type.getName() + "JsonConverter");
    }

    private static String oneLine(Throwable error) {
        return String.valueOf(error).replaceAll("\\s+", " ");
    }
}
