# RabbitMQ, so Erlang: its port mapper, its nodes' own connections, and messages over AMQP.

messages() {
    export RABBITMQ_NODENAME=shunt@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=6501 RABBITMQ_DIST_PORT=6502 HOME=$PWD
    export RABBITMQ_MNESIA_BASE=$PWD/mnesia RABBITMQ_LOG_BASE=$PWD/log RABBITMQ_ENABLED_PLUGINS_FILE=$PWD/plugins RABBITMQ_PID_FILE=$PWD/rabbit.pid ERL_EPMD_PORT=6503
    mkdir -p mnesia log
    echo '[].' >plugins
    serve /usr/lib/rabbitmq/bin/rabbitmq-server
    await_port 6501 12000
    /usr/bin/python3 - <<'END'
import hashlib, pika, threading
parameters = pika.ConnectionParameters("127.0.0.1", 6501)
def consume(count, digests):
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    digest = hashlib.sha256()
    for number, (method, _, body) in enumerate(channel.consume("numbers", auto_ack=True, inactivity_timeout=60), 1):
        if body is None:
            break
        digest.update(body)
        if number == count:
            break
    digests.append(digest.hexdigest())
    connection.close()
connection = pika.BlockingConnection(parameters)
channel = connection.channel()
channel.queue_declare("numbers")
channel.confirm_delivery()
digests = []
reader = threading.Thread(target=consume, args=(1010, digests))
reader.start()
for number in range(1000):
    channel.basic_publish("", "numbers", str(number).encode() * 10)
for number in range(10):
    channel.basic_publish("", "numbers", bytes([number]) * 1_000_000)
reader.join(100)
print(digests)
connection.close()
END
    timeout 60 /usr/lib/rabbitmq/bin/rabbitmqctl -n shunt@localhost list_queues -q name 2>&1 | tail -1
    timeout 60 /usr/lib/rabbitmq/bin/rabbitmqctl -n shunt@localhost stop >/dev/null 2>&1
}
