# Dovecot, whose login processes pass each connection on: mail in and out over IMAP by several users at once, reloads under load.

_dovecot() {
    mkdir -p run state mail
    chmod 777 mail
    chmod a+rx . ..
    cat >dovecot.conf <<END
base_dir = $PWD/run
state_dir = $PWD/state
log_path = $PWD/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
default_internal_user = root
default_internal_group = root
default_login_user = nobody
mail_uid = nobody
mail_gid = nogroup
first_valid_gid = 0
mail_location = maildir:$PWD/mail/%u
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=65534 gid=65534 home=$PWD/mail/%u
}
service imap-login {
  chroot =
  inet_listener imap {
    port = 5342
  }
  inet_listener imaps {
    port = 0
  }
}
service anvil {
  chroot =
}
END
    serve dovecot -F -c "$PWD/dovecot.conf"
    await_port 5342
    cat >read.py <<'END'
import hashlib, imaplib, sys
user, turns = sys.argv[1], int(sys.argv[2])
digest = hashlib.sha256()
for turn in range(turns):
    session = imaplib.IMAP4("127.0.0.1", 5342)
    session.login(user, "secret")
    for n in range(10):
        session.append("INBOX", None, None, f"Subject: {turn} {n}\r\n\r\n".encode() + b"some text\r\n" * (1 if n else 100000))
    session.select()
    for number in session.search(None, "ALL")[1][0].split():
        digest.update(session.fetch(number, "(BODY.PEEK[TEXT])")[1][0][1])
    session.logout()
print(user, digest.hexdigest())
END
}
dovecot_gives_it() {
    _dovecot
    local readers=()
    for one in 1 2 3; do timeout 100 /usr/bin/python3 read.py user$one 3 >read.$one & readers+=($!); done
    wait "${readers[@]}"
    cat read.?
}
dovecot_reloads() {
    _dovecot
    cat >session.py <<'END'
import imaplib, time
session = imaplib.IMAP4("127.0.0.1", 5342)
session.login("long", "secret")
open("begun", "w").close()
for n in range(60):
    session.append("INBOX", None, None, b"Subject: %d\r\n\r\ntext\r\n" % n)
    time.sleep(0.03)
session.select()
print(len(session.search(None, "ALL")[1][0].split()))
session.logout()
END
    timeout 100 /usr/bin/python3 session.py &
    local reader=$!
    await test -e begun
    for _ in 1 2 3; do
        doveadm -c "$PWD/dovecot.conf" reload
        sleep 0.5
    done
    wait $reader
    timeout 100 /usr/bin/python3 read.py after 1
}
