import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Regions as direct buffers, written by compiled code while they are being output, beside faults that the virtual machine lives by. */
public class Buffers {
    static final int SIZE = 1 << 20;

    static native void begin(int size);
    /** A fresh region's memory; the one before is given back. */
    static native ByteBuffer region();
    /** Sends it by a call that need not wait; how many outputs are under way then. */
    static native int send();
    static native void receive(byte[] target);

    static class Node { int value; }
    static volatile boolean done;
    static final AtomicLong nulls = new AtomicLong(), overflows = new AtomicLong();

    static int valueOf(Node node) { return node.value; }
    static int deep(int n) { return n == 0 ? 0 : 1 + deep(n - 1) + deep(0); }

    /** Null pointers found by SIGSEGV, a stack that ends in a guard page. */
    static void faults() {
        Node[] nodes = {new Node(), null};
        long sum = 0;
        for (int i = 0; !done; i++) {
            try {
                sum += valueOf(nodes[i & 1]);
            } catch (NullPointerException expected) {
                nulls.incrementAndGet();
            }
            if (i % 1000 == 0) {
                try { sum += deep(10_000_000); } catch (StackOverflowError expected) { overflows.incrementAndGet(); }
                // Few processors are others', too.
                try { Thread.sleep(2); } catch (InterruptedException unexpected) { return; }
            }
        }
        if (sum == 42) System.out.println();
    }

    static void fill(ByteBuffer buffer, long value) {
        for (int i = 0; i < SIZE; i += 8) buffer.putLong(i, value);
    }

    static boolean isFilled(ByteBuffer buffer, long value) {
        boolean same = true;
        for (int i = 0; i < SIZE; i += 8) same &= buffer.getLong(i) == value;
        return same;
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        begin(SIZE);
        Thread faulting = new Thread(Buffers::faults);
        faulting.start();
        byte[] came = new byte[SIZE], other = new byte[SIZE];
        ByteBuffer received = ByteBuffer.wrap(came).order(ByteOrder.nativeOrder());
        // A thread of its own: a message that is copied after all waits for its receiver.
        ExecutorService receiver = Executors.newSingleThreadExecutor();
        int underWay = 0;
        // What is under way is the port's choice, by what copies and faults cost it: on a crowded machine it copies for a while.
        for (long round = 1; round <= 100 || underWay <= 20 && round <= 2000; round++) {
            ByteBuffer region = region().order(ByteOrder.nativeOrder());
            fill(region, round);
            // Most are read when they have been written to; where one was copied nobody says so before it is taken.
            Semaphore written = new Semaphore(0);
            boolean waits = round % 4 != 0;
            Future<?> coming = receiver.submit(() -> {
                if (waits) written.tryAcquire(50, TimeUnit.MILLISECONDS);
                receive(came);
                return null;
            });
            underWay += send() > 0 ? 1 : 0;
            // By compiled code, by the virtual machine's own copies, and by a thread that had no part in it.
            if (round % 3 == 0) region.put(0, other);
            else if (round % 3 == 1) fill(region, -round);
            else {
                Thread writer = new Thread(() -> fill(region, -1));
                writer.start();
                writer.join();
            }
            written.release();
            coming.get();
            if (!isFilled(received, round)) throw new AssertionError("round " + round);
            if (round % 25 == 0) System.gc();
        }
        done = true;
        faulting.join();
        receiver.shutdown();
        System.out.println(underWay > 20 ? "under way" : "copied: " + underWay);
        System.out.println(nulls.get() > 100 && overflows.get() > 1 ? "faults" : nulls + " " + overflows);
    }
}
