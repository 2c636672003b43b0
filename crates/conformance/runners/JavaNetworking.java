import com.sun.net.httpserver.HttpServer;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.*;
import io.netty.channel.epoll.*;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.*;
import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/**
 * Java's ways to use sockets, each a case with a verdict in the file $VERDICTS: Netty's echo with 500 connections over NIO and over its
 * own epoll, within one process and between two; NIO's selectors and asynchronous channels; blocking sockets with their time limits and
 * with close from another thread; the JDK's HTTP server and client.
 */
public class JavaNetworking {
    interface Body { void run() throws Exception; }

    static PrintWriter verdicts;
    static final InetAddress LOOPBACK = InetAddress.getLoopbackAddress();

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) {
            serve(arguments[0].equals("epoll"));
            return;
        }
        verdicts = new PrintWriter(new FileWriter(System.getenv("VERDICTS")), true);
        for (boolean epoll : new boolean[] {false, true}) {
            String name = "netty " + (epoll ? "epoll" : "nio");
            test(name + ": 500 connections in one process", () -> {
                try (Echo echo = new Echo(epoll)) { echo.clients(echo.port, 500, 20, 700); }
            });
            test(name + ": 500 connections between two processes", () -> {
                Process server = new ProcessBuilder(
                        ProcessHandle.current().info().command().get(), "-cp", System.getProperty("java.class.path"),
                        "JavaNetworking", epoll ? "epoll" : "nio").redirectError(ProcessBuilder.Redirect.INHERIT).start();
                try (Echo echo = new Echo(epoll)) {
                    BufferedReader told = new BufferedReader(new InputStreamReader(server.getInputStream()));
                    String line = told.readLine();
                    // The virtual machine's own warnings go to standard output, too: that /tmp/hsperfdata_* is locked by
                    // another process, say, of which the other side's run has one under the same number.
                    while (line != null && !line.matches("[0-9]+")) {
                        System.err.println("the server says: " + line);
                        line = told.readLine();
                    }
                    echo.clients(Integer.parseInt(line), 500, 20, 700);
                } finally {
                    server.getOutputStream().close();
                    server.waitFor();
                }
            });
            test(name + ": large messages, 20 connections", () -> {
                try (Echo echo = new Echo(epoll)) { echo.clients(echo.port, 20, 3, 3_000_000); }
            });
            test(name + ": connections made and closed 500 times", () -> {
                try (Echo echo = new Echo(epoll)) {
                    for (int i = 0; i < 10; i++) echo.clients(echo.port, 50, 1, 10);
                }
            });
        }
        test("selector: accept, read, write, end", JavaNetworking::selector);
        test("asynchronous channels", JavaNetworking::asynchronous);
        test("blocking socket: time limit of a read", () -> pair((client, server) -> {
            client.setSoTimeout(50);
            expect(SocketTimeoutException.class, () -> client.getInputStream().read());
            server.getOutputStream().write(7);
            equal(7, client.getInputStream().read());
        }));
        test("blocking socket: close ends a read of another thread", () -> pair((client, server) -> {
            CompletableFuture<Throwable> ended = new CompletableFuture<>();
            Thread reader = new Thread(() -> {
                try { client.getInputStream().read(); ended.complete(null); } catch (Throwable error) { ended.complete(error); }
            });
            reader.start();
            Thread.sleep(100);
            client.close();
            equal(SocketException.class, ended.get(20, TimeUnit.SECONDS).getClass());
            equal(-1, server.getInputStream().read());
        }));
        test("blocking server: close ends an accept of another thread", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOOPBACK);
            CompletableFuture<Throwable> ended = new CompletableFuture<>();
            new Thread(() -> {
                try { listener.accept(); ended.complete(null); } catch (Throwable error) { ended.complete(error); }
            }).start();
            Thread.sleep(100);
            listener.close();
            equal(SocketException.class, ended.get(20, TimeUnit.SECONDS).getClass());
        });
        test("blocking server: time limit of an accept", () -> {
            try (ServerSocket listener = new ServerSocket(0, 5, LOOPBACK)) {
                listener.setSoTimeout(50);
                expect(SocketTimeoutException.class, listener::accept);
            }
        });
        test("blocking socket: half-close, reset, available", () -> pair((client, server) -> {
            client.getOutputStream().write(new byte[100]);
            client.shutdownOutput();
            equal(100, server.getInputStream().readAllBytes().length);
            server.getOutputStream().write(new byte[10]);
            while (client.getInputStream().available() < 10) Thread.sleep(1);
            server.setSoLinger(true, 0);
            server.close();
            expect(SocketException.class, () -> { while (client.getInputStream().read() >= 0) { } });
        }));
        test("channel: interrupt ends a read", () -> {
            try (ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress(LOOPBACK, 0));
                    SocketChannel client = SocketChannel.open(listener.getLocalAddress()); SocketChannel server = listener.accept()) {
                CompletableFuture<Throwable> ended = new CompletableFuture<>();
                Thread reader = new Thread(() -> {
                    try { client.read(ByteBuffer.allocate(1)); ended.complete(null); } catch (Throwable error) { ended.complete(error); }
                });
                reader.start();
                Thread.sleep(100);
                reader.interrupt();
                equal(ClosedByInterruptException.class, ended.get(20, TimeUnit.SECONDS).getClass());
            }
        });
        test("channel: a file by transferTo", () -> {
            Path file = Files.createTempFile("transfer", "");
            Files.write(file, new byte[5_000_000]);
            try (ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress(LOOPBACK, 0));
                    SocketChannel client = SocketChannel.open(listener.getLocalAddress()); SocketChannel server = listener.accept();
                    FileChannel source = FileChannel.open(file)) {
                CompletableFuture<Long> sum = CompletableFuture.supplyAsync(() -> {
                    try {
                        ByteBuffer buffer = ByteBuffer.allocate(70_000);
                        long total = 0, count;
                        while ((count = server.read(buffer.clear())) >= 0) total += count;
                        return total;
                    } catch (IOException error) { throw new UncheckedIOException(error); }
                });
                long at = 0;
                while (at < 5_000_000) at += source.transferTo(at, 5_000_000 - at, client);
                client.shutdownOutput();
                equal(5_000_000L, sum.get(60, TimeUnit.SECONDS));
            }
        });
        test("a port that nobody listens at", () -> {
            int port;
            try (ServerSocket listener = new ServerSocket(0, 5, LOOPBACK)) { port = listener.getLocalPort(); }
            expect(ConnectException.class, () -> new Socket(LOOPBACK, port));
        });
        test("HTTP server and client", JavaNetworking::http);
        System.exit(0);
    }

    static void test(String name, Body body) {
        verdicts.println("running\t" + name);
        String verdict = "ok";
        try {
            body.run();
        } catch (Throwable error) {
            error.printStackTrace();
            verdict = "failed: " + error.getClass().getSimpleName();
        }
        verdicts.println(verdict + "\t" + name);
    }

    static void equal(Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) throw new AssertionError("wanted " + wanted + ", got " + got);
    }

    static void expect(Class<?> wanted, Body body) {
        try { body.run(); } catch (Throwable error) {
            if (wanted.isInstance(error)) return;
            throw new AssertionError("wanted " + wanted, error);
        }
        throw new AssertionError("wanted " + wanted + ", got nothing");
    }

    interface Pair { void run(Socket client, Socket server) throws Exception; }

    static void pair(Pair body) throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 5, LOOPBACK); Socket client = new Socket(LOOPBACK, listener.getLocalPort());
                Socket server = listener.accept()) {
            body.run(client, server);
        }
    }

    /** An echo server, and clients that send a message, wait for its echo, compare, and send the next. */
    static class Echo implements AutoCloseable {
        final boolean epoll;
        final EventLoopGroup group;
        final io.netty.channel.Channel listener;
        final int port;

        Echo(boolean epoll) throws Exception {
            this.epoll = epoll;
            group = epoll ? new EpollEventLoopGroup(2) : new NioEventLoopGroup(2);
            listener = new ServerBootstrap().group(group)
                    .channel(epoll ? EpollServerSocketChannel.class : NioServerSocketChannel.class)
                    .option(ChannelOption.SO_BACKLOG, 1024)
                    .childHandler(new ChannelInboundHandlerAdapter() {
                        @Override public boolean isSharable() { return true; }
                        @Override public void channelRead(ChannelHandlerContext context, Object message) { context.writeAndFlush(message); }
                    }).bind(LOOPBACK, 0).sync().channel();
            port = ((InetSocketAddress) listener.localAddress()).getPort();
        }

        void clients(int port, int connections, int messages, int size) throws Exception {
            CountDownLatch done = new CountDownLatch(connections);
            Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
            for (int i = 0; i < connections; i++) {
                int number = i;
                new Bootstrap().group(group).channel(epoll ? EpollSocketChannel.class : NioSocketChannel.class)
                        .handler(new Client(number, messages, size, errors, done)).connect(LOOPBACK, port)
                        .addListener(future -> { if (!future.isSuccess()) { errors.add(future.cause()); done.countDown(); } });
            }
            if (!done.await(120, TimeUnit.SECONDS)) throw new TimeoutException(done.getCount() + " connections wait");
            if (!errors.isEmpty()) throw new AssertionError(errors.size() + " connections failed", errors.peek());
        }

        @Override public void close() throws Exception {
            listener.close().sync();
            group.shutdownGracefully(0, 5, TimeUnit.SECONDS).sync();
        }
    }

    static class Client extends ChannelInboundHandlerAdapter {
        final int number, messages, size;
        final Queue<Throwable> errors;
        final CountDownLatch done;
        int sent, got;

        Client(int number, int messages, int size, Queue<Throwable> errors, CountDownLatch done) {
            this.number = number; this.messages = messages; this.size = size; this.errors = errors; this.done = done;
        }

        void send(ChannelHandlerContext context) {
            byte[] bytes = new byte[size];
            for (int i = 0; i < size; i++) bytes[i] = (byte) (number * 31 + sent * 7 + i);
            context.writeAndFlush(Unpooled.wrappedBuffer(bytes));
            sent++;
            got = 0;
        }

        @Override public void channelActive(ChannelHandlerContext context) { send(context); }

        @Override public void channelRead(ChannelHandlerContext context, Object message) {
            ByteBuf buffer = (ByteBuf) message;
            while (buffer.isReadable()) {
                byte wanted = (byte) (number * 31 + (sent - 1) * 7 + got++);
                if (buffer.readByte() != wanted) throw new AssertionError("a byte of connection " + number + " is wrong");
            }
            buffer.release();
            if (got == size && sent < messages) send(context);
            else if (got == size) context.close();
        }

        @Override public void channelInactive(ChannelHandlerContext context) {
            if (got < size || sent < messages) errors.add(new IOException("connection " + number + " ended early"));
            done.countDown();
        }

        @Override public void exceptionCaught(ChannelHandlerContext context, Throwable error) { errors.add(error); context.close(); }
    }

    static void serve(boolean epoll) throws Exception {
        try (Echo echo = new Echo(epoll)) {
            System.out.println(echo.port);
            while (System.in.read() >= 0) { }
        }
        System.exit(0);
    }

    static void selector() throws Exception {
        try (Selector selector = Selector.open(); ServerSocketChannel listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress(LOOPBACK, 0)).configureBlocking(false);
            listener.register(selector, SelectionKey.OP_ACCEPT);
            int clients = 50, ended = 0;
            List<SocketChannel> channels = new ArrayList<>();
            for (int i = 0; i < clients; i++) {
                SocketChannel client = SocketChannel.open();
                client.configureBlocking(false);
                client.connect(listener.getLocalAddress());
                client.register(selector, SelectionKey.OP_CONNECT);
                channels.add(client);
            }
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (ended < clients && System.nanoTime() < deadline) {
                selector.select(1000);
                for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext(); ) {
                    SelectionKey key = keys.next();
                    keys.remove();
                    if (!key.isValid()) continue;
                    if (key.isAcceptable()) {
                        for (SocketChannel server; (server = listener.accept()) != null; ) {
                            server.configureBlocking(false);
                            server.register(selector, SelectionKey.OP_READ, "server");
                        }
                    } else if (key.isConnectable()) {
                        SocketChannel client = (SocketChannel) key.channel();
                        equal(true, client.finishConnect());
                        client.write(ByteBuffer.wrap("hello".getBytes()));
                        key.interestOps(SelectionKey.OP_READ);
                    } else if (key.isReadable()) {
                        SocketChannel channel = (SocketChannel) key.channel();
                        ByteBuffer buffer = ByteBuffer.allocate(100);
                        int count = channel.read(buffer);
                        if (count < 0) { channel.close(); if (key.attachment() != null) ended++; continue; }
                        buffer.flip();
                        if (key.attachment() != null) channel.write(buffer);
                        else { equal(5, count); channel.close(); }
                    }
                }
            }
            equal(clients, ended);
        }
    }

    static void asynchronous() throws Exception {
        try (AsynchronousServerSocketChannel listener = AsynchronousServerSocketChannel.open().bind(new InetSocketAddress(LOOPBACK, 0))) {
            for (int i = 0; i < 50; i++) {
                Future<AsynchronousSocketChannel> accepted = listener.accept();
                try (AsynchronousSocketChannel client = AsynchronousSocketChannel.open()) {
                    client.connect(listener.getLocalAddress()).get(20, TimeUnit.SECONDS);
                    try (AsynchronousSocketChannel server = accepted.get(20, TimeUnit.SECONDS)) {
                        ByteBuffer buffer = ByteBuffer.allocate(100);
                        Future<Integer> read = server.read(buffer);
                        equal(5, client.write(ByteBuffer.wrap("hello".getBytes())).get(20, TimeUnit.SECONDS));
                        equal(5, read.get(20, TimeUnit.SECONDS));
                        Future<Integer> end = server.read(buffer);
                        client.close();
                        equal(-1, end.get(20, TimeUnit.SECONDS));
                    }
                }
            }
        }
    }

    static void http() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(LOOPBACK, 0), 100);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
            if (body.length > 0) exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        HttpClient client = HttpClient.newHttpClient();
        List<CompletableFuture<HttpResponse<String>>> answers = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create("http://localhost:" + server.getAddress().getPort() + "/" + i))
                    .POST(HttpRequest.BodyPublishers.ofString("body ".repeat(i))).build();
            answers.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofString()));
        }
        for (int i = 0; i < 200; i++) equal("body ".repeat(i), answers.get(i).get(60, TimeUnit.SECONDS).body());
        server.stop(0);
    }
}
