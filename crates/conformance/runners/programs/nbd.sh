# nbdkit, qemu-nbd, nbdcopy, qemu-img: disks over TCP, several connections each, plain and with TLS; a server killed.

_image() { [ -e image ] || { for _ in $(seq 8); do cat large; done >image; truncate -s 40M image; }; }
copies_from_nbdkit() {
    _image
    serve nbdkit -f -p 5317 -i 127.0.0.1 file image
    await_port 5317
    timeout 100 nbdcopy --connections=4 nbd://127.0.0.1:5317 one && sha256sum <one
    timeout 100 nbdcopy --connections=1 --synchronous nbd://127.0.0.1:5317 - | sha256sum
    timeout 100 qemu-img convert -f raw -O raw nbd://127.0.0.1:5317 two && cmp two image && echo same
    nbdinfo --size nbd://127.0.0.1:5317
}
copies_to_nbdkit() {
    _image
    serve nbdkit -f -p 5317 -i 127.0.0.1 memory 64M
    await_port 5317
    timeout 100 nbdcopy --connections=4 image nbd://127.0.0.1:5317
    timeout 100 nbdcopy nbd://127.0.0.1:5317 - | head -c 40M | sha256sum
}
qemu_serves() {
    _image
    serve qemu-nbd -f raw -p 5318 -b 127.0.0.1 -t -e 8 image
    await_port 5318
    timeout 100 nbdcopy --connections=4 nbd://127.0.0.1:5318 one && sha256sum <one
    timeout 100 qemu-img bench -c 4000 -d 16 -f raw -t none -s 4096 nbd://127.0.0.1:5318 | grep -c 'Run completed'
    timeout 100 qemu-img compare -f raw -F raw image nbd://127.0.0.1:5318
}
killed_server() {
    _image
    serve nbdkit -f -p 5317 -i 127.0.0.1 --filter=delay memory 64M rdelay=2
    local killed=$!
    await_port 5317
    timeout 60 nbdcopy nbd://127.0.0.1:5317 null: >answer 2>&1 &
    local client=$!
    sleep 1
    kill -9 $killed
    wait $client
    echo "client: $?"
}
