# iSCSI: the target framework's daemon with libiscsi's clients: their own tests of SCSI commands, sessions that are killed under load.

_start() { # PORT
    export TGT_IPC_SOCKET=$PWD/control
    truncate -s 64M disk
    serve tgtd -f -C "$1" --iscsi "portal=127.0.0.1:$1"
    await_port "$1"
    local say=(tgtadm -C "$1" --lld iscsi)
    await "${say[@]}" --op new --mode target --tid 1 -T iqn.2001-01.there:disk
    "${say[@]}" --op new --mode logicalunit --tid 1 --lun 1 -b "$PWD/disk"
    "${say[@]}" --op bind --mode target --tid 1 -I ALL
}
# A signal does not end it while it has targets.
_stop() { # PORT
    timeout 20 tgtadm -C "$1" --lld iscsi --op delete --mode target --tid 1 --force
    timeout 20 tgtadm -C "$1" --op delete --mode system
}
_disk() { echo "iscsi://127.0.0.1:$1/iqn.2001-01.there:disk/1"; }
own_tests() {
    _start 5221
    timeout 20 iscsi-ls -s iscsi://127.0.0.1:5221
    timeout 20 iscsi-inq "$(_disk 5221)"
    timeout 20 iscsi-readcapacity16 "$(_disk 5221)"
    for family in Read6 Read10 Read16 Write10 Write16 WriteSame10 Verify10 CompareAndWrite Inquiry ModeSense6 Prefetch10 TestUnitReady \
        iSCSIcmdsn iSCSIdatasn iSCSIResiduals ReportSupportedOpcodes; do
        echo "$family: $(timeout 100 iscsi-test-cu -d -V -t "ALL.$family" "$(_disk 5221)" 2>&1 | grep -E '^ +tests' | tr -s ' ' | tr '\n' ' ')"
    done
    sha256sum <disk
    _stop 5221
}
killed_sessions() {
    _start 5222
    for _ in 1 2 3 4 5; do
        timeout 30 iscsi-perf -t 20 "$(_disk 5222)" >perf.log 2>&1 &
        sleep 0.4
        pkill -9 -P $! iscsi-perf
        wait $!
    done 2>/dev/null
    timeout 20 iscsi-inq "$(_disk 5222)" | head -3
    _stop 5222
}
