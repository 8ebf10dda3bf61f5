import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools in one JVM, one after the other: a line is a class and its arguments, with tabs
 * between. What the tool prints follows, then "exit CODE".
 */
public class KafkaTools {
    private static final class Ended extends RuntimeException {
        private Ended() {
            super(null, null, false, false);
        }
    }

    private static final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    private static Integer exitCode;
    private static String output;

    private static void exit(int code, String message) {
        if (exitCode == null) { // a tool may take the exception for a failure, print it, and exit again
            exitCode = code;
            output = printed.toString(StandardCharsets.UTF_8);
        }
        throw new Ended();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // Scala and the loggers keep the stream that they find first, so this one stays.
        PrintStream kept = new PrintStream(new OutputStream() {
            @Override
            public synchronized void write(int one) {
                printed.write(one);
            }

            @Override
            public synchronized void write(byte[] bytes, int offset, int length) {
                printed.write(bytes, offset, length);
            }
        }, true, StandardCharsets.UTF_8);
        System.setOut(kept);
        System.setErr(kept);
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
        Exit.setExitProcedure(KafkaTools::exit);
        Exit.setHaltProcedure(KafkaTools::exit);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("===")) {
                answers.println(line);
                continue;
            }
            String[] words = line.split("\t", -1);
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            answers.print(output.isEmpty() || output.endsWith("\n") ? output : output + "\n");
            answers.println("exit " + code);
        }
    }

    private static int run(String tool, String[] arguments) throws Exception {
        exitCode = null;
        printed.reset();
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (exitCode == null) {
                error.getCause().printStackTrace();
                exitCode = 1;
                output = printed.toString(StandardCharsets.UTF_8);
            }
        }
        if (exitCode == null) {
            exitCode = 0;
            output = printed.toString(StandardCharsets.UTF_8);
        }
        return exitCode;
    }
}
