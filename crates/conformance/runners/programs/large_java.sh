# Java's ways to move files and large buffers, beside the faults that its virtual machine lives by: null pointers that compiled code finds by
# SIGSEGV, stacks that end in a guard page.

files_and_buffers_beside_faults() {
    cat >Large.java <<'JAVA'
import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32;

public class Large {
    static final int SIZE = 8_000_003;
    static class Node { int value; }
    static volatile boolean done;
    static final AtomicLong nulls = new AtomicLong(), overflows = new AtomicLong();
    static int valueOf(Node node) { return node.value; }
    static int deep(int n) { return n == 0 ? 0 : 1 + deep(n - 1) + deep(0); }
    static void faults() {
        Node[] nodes = {new Node(), null};
        long sum = 0;
        for (int i = 0; !done; i++) {
            try { sum += valueOf(nodes[i & 1]); } catch (NullPointerException expected) { nulls.incrementAndGet(); }
            if (i % 10_000 == 0) LockSupport.parkNanos(1_000_000);
            if (i % 100_000 == 0)
                try { sum += deep(10_000_000); } catch (StackOverflowError expected) { overflows.incrementAndGet(); }
        }
    }
    // Drawn for one block and numbered in each, as the interpreter takes a second to draw a megabyte.
    static byte[] bytes(int seed, int size) {
        byte[] all = new byte[size], block = new byte[65_521];
        new Random(seed).nextBytes(block);
        ByteBuffer numbered = ByteBuffer.wrap(block);
        for (int at = 0; at < size; at += block.length) {
            numbered.putInt(0, at);
            System.arraycopy(block, 0, all, at, Math.min(block.length, size - at));
        }
        return all;
    }
    static long sum(InputStream from, int length) throws IOException {
        CRC32 sum = new CRC32();
        byte[] part = new byte[100_000];
        for (int left = length; left > 0; ) {
            int got = from.read(part, 0, Math.min(part.length, left));
            if (got < 0) throw new EOFException(left + " are missing");
            sum.update(part, 0, got);
            left -= got;
        }
        return sum.getValue();
    }
    interface Sender { void send(SocketChannel to, byte[] all) throws Exception; }
    static void file(SocketChannel to, byte[] all) throws Exception {
        Path path = Files.createTempFile("large", "");
        Files.write(path, all);
        try (FileChannel from = FileChannel.open(path)) {
            for (long at = 0; at < all.length; ) at += from.transferTo(at, all.length - at, to);
        }
        Files.delete(path);
    }
    static void mapped(SocketChannel to, byte[] all) throws Exception {
        Path path = Files.createTempFile("large", "");
        Files.write(path, all);
        try (FileChannel from = FileChannel.open(path)) {
            MappedByteBuffer buffer = from.map(FileChannel.MapMode.READ_ONLY, 0, all.length);
            while (buffer.hasRemaining()) to.write(buffer);
        }
        Files.delete(path);
    }
    static void gathered(SocketChannel to, byte[] all) throws Exception {
        ByteBuffer direct = ByteBuffer.allocateDirect(all.length).put(all).flip();
        ByteBuffer[] parts = new ByteBuffer[7];
        for (int i = 0; i < parts.length; i++)
            parts[i] = direct.duplicate().position(all.length * i / parts.length).limit((int) ((long) all.length * (i + 1) / parts.length));
        while (parts[parts.length - 1].hasRemaining()) to.write(parts);
    }
    static void plain(SocketChannel to, byte[] all) throws Exception { to.socket().getOutputStream().write(all); }
    static void received(SocketChannel from, int seed) throws Exception {
        // Into a file, by the channel's own copies.
        Path path = Files.createTempFile("large", "");
        try (FileChannel into = FileChannel.open(path, StandardOpenOption.WRITE)) {
            for (long at = 0; at < SIZE; ) at += into.transferFrom(from, at, SIZE - at);
        }
        if (!Arrays.equals(Files.readAllBytes(path), bytes(seed, SIZE))) throw new IOException("other bytes");
        Files.delete(path);
    }
    public static void main(String[] arguments) throws Exception {
        Thread[] threads = {new Thread(Large::faults), new Thread(Large::faults)};
        for (Thread thread : threads) thread.start();
        Sender[] senders = {Large::file, Large::mapped, Large::gathered, Large::plain};
        ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        ExecutorService pool = Executors.newCachedThreadPool();
        for (int round = 0; round < 3; round++) {
            List<Future<String>> ends = new ArrayList<>();
            for (int way = 0; way < senders.length; way++) {
                int seed = round * senders.length + way;
                Sender sender = senders[way];
                SocketChannel client = SocketChannel.open(listener.getLocalAddress());
                SocketChannel server = listener.accept();
                pool.submit(() -> {
                    try (server) {
                        sender.send(server, bytes(seed, SIZE));
                        received(server, seed);
                        server.socket().getOutputStream().write(1);
                    } catch (Throwable failed) { failed.printStackTrace(); }
                });
                ends.add(pool.submit(() -> {
                    try (client) {
                        String sum = seed + " " + Long.toHexString(sum(client.socket().getInputStream(), SIZE));
                        file(client, bytes(seed, SIZE));
                        return sum + " " + client.socket().getInputStream().read();
                    }
                }));
            }
            for (Future<String> end : ends) System.out.println(end.get(60, TimeUnit.SECONDS));
            System.gc();
        }
        done = true;
        for (Thread thread : threads) thread.join();
        pool.shutdown();
        System.out.println(nulls.get() > 1000 && overflows.get() > 1 ? "faults" : nulls + " " + overflows);
    }
}
JAVA
    javac -J-XX:-UsePerfData Large.java
    local options
    for options in '' '-Xint' '-XX:+UseSerialGC -Xcomp'; do timeout 100 java -XX:-UsePerfData -Xmx512m $options -cp . Large; done
}
