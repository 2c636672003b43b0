# Apache Kafka, one broker that is its own controller: its console programs write and read numbered lines, compressed ones, long ones (which it sends by
# sendfile), a group of consumers; the broker killed under way and back.

# What stands before each main class; java takes the star itself.
_java=(java -Xmx512m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Dlog4j.configuration=file:log4j.properties -cp "$SUITE/lib/*")

_broker() {
    serve "${_java[@]}" kafka.Kafka server.properties
    await_port 5351 12000
}
_site() {
    cat >log4j.properties <<END
log4j.rootLogger=WARN, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File=$PWD/java.log
log4j.appender.file.layout=org.apache.log4j.SimpleLayout
END
    cat >server.properties <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:5352
listeners=PLAINTEXT://127.0.0.1:5351,CONTROLLER://127.0.0.1:5352
controller.listener.names=CONTROLLER
log.dirs=$PWD/logs
message.max.bytes=8000000
replica.fetch.max.bytes=8000000
socket.request.max.bytes=104857600
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
group.initial.rebalance.delay.ms=0
END
    rm -rf logs
    "${_java[@]}" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAA -c server.properties >/dev/null 2>&1
    _broker
}
_topic() { # NAME PARTITIONS
    await "${_java[@]}" org.apache.kafka.tools.TopicCommand --bootstrap-server 127.0.0.1:5351 --create --if-not-exists --topic "$1" --partitions "$2"
}
_write() { # TOPIC [PROPERTY]...
    local topic=$1 property properties=()
    shift
    for property in "$@"; do properties+=(--producer-property "$property"); done
    timeout 120 "${_java[@]}" kafka.tools.ConsoleProducer --bootstrap-server 127.0.0.1:5351 --topic "$topic" --request-required-acks all "${properties[@]}" >/dev/null
}
_read() { # TOPIC COUNT [ARGUMENT]...
    timeout 120 "${_java[@]}" org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server 127.0.0.1:5351 --topic "$1" --max-messages "$2" --timeout-ms "${patience:-60000}" "${@:3}" 2>/dev/null
}

lines_in_order() {
    _site
    _topic plain 1
    _topic packed 1
    seq 100000 | _write plain
    _read plain 100000 --from-beginning | sha256sum
    seq 100000 | _write packed compression.type=gzip linger.ms=5
    _read packed 100000 --from-beginning | sha256sum
    seq 400 | _write plain batch.size=1 linger.ms=0 max.in.flight.requests.per.connection=1
    _read plain 400 --partition 0 --offset 100000 | sha256sum
}
long_lines() {
    _site
    _topic long 1
    for n in 1 2 3 4 5 6 7 8; do { seq -s, "$n" 300000; } ; done >long
    _write long max.request.size=8000000 buffer.memory=64000000 <long
    sha256sum <long
    for _ in 1 2 3; do _read long 8 --from-beginning --consumer-property fetch.max.bytes=16000000 --consumer-property max.partition.fetch.bytes=8000000 | sha256sum; done
}
several_that_share() {
    _site
    _topic shared 4
    seq 60000 | _write shared linger.ms=5
    local readers=()
    for n in 1 2 3; do
        patience=15000 _read shared 1000000 --group together --from-beginning >"got.$n" &
        readers+=($!)
    done
    wait "${readers[@]}"
    sort -nu got.1 got.2 got.3 | sha256sum
}
the_broker_is_killed() {
    _site
    _topic kept 1
    local broker=${servers[0]}
    { seq 20000; sleep 3; seq 20001 40000; } | _write kept enable.idempotence=true delivery.timeout.ms=100000 request.timeout.ms=5000 &
    local writer=$!
    sleep 3
    kill -9 "$broker"
    sleep 1
    _broker
    wait "$writer"
    _read kept 40000 --from-beginning | sort -n | sha256sum
}
