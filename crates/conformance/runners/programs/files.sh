# Samba and the git daemon: files through servers that fork, several clients at once.

git_daemon() {
    export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
    git init -q --bare served/one.git
    git init -q work
    (cd work && git config user.email a@example.test && git config user.name a
        for n in $(seq 20); do seq $((n * 1000)) >file$n; git add .; git commit -q -m "$n" --date '2020-01-01T00:00:00Z'; done)
    serve git daemon --base-path="$PWD/served" --export-all --enable=receive-pack --reuseaddr --listen=127.0.0.1 --port=5371
    await_port 5371
    git -C work push -q git://127.0.0.1:5371/one.git HEAD:refs/heads/main && echo pushed
    local clones=()
    for one in 1 2 3 4; do git clone -q -b main git://127.0.0.1:5371/one.git clone$one & clones+=($!); done
    wait "${clones[@]}"
    cat clone?/file* | sha256sum
    for _ in $(seq 10); do git ls-remote git://127.0.0.1:5371/one.git | cut -f2; done | sort | uniq -c
}
samba() {
    mkdir -p share private locks state cache run
    chmod 777 share
    cat >smb.conf <<END
[global]
  workgroup = TEST
  smb ports = 5373
  bind interfaces only = yes
  interfaces = 127.0.0.1/8
  map to guest = bad user
  guest account = root
  private dir = $PWD/private
  lock directory = $PWD/locks
  state directory = $PWD/state
  cache directory = $PWD/cache
  pid directory = $PWD/run
  ncalrpc dir = $PWD/run
  log file = $PWD/samba.log
  load printers = no
  disable spoolss = yes
[share]
  path = $PWD/share
  guest ok = yes
  read only = no
END
    cp large share/large
    serve smbd -F --no-process-group -s "$PWD/smb.conf"
    await_port 5373
    local clients=() one
    for one in 1 2 3; do
        timeout 60 smbclient -s "$PWD/smb.conf" -N -p 5373 //127.0.0.1/share -c "get large got$one; put got$one put$one; ls large" >list$one 2>&1 &
        clients+=($!)
    done
    wait "${clients[@]}"
    sha256sum got? share/put?
    cut -c1-40 list1 | grep large
}
