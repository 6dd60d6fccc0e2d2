# The life of a private PostgreSQL cluster: made at the start, started and stopped by a word on
# stdin, gone when stdin ends. Stdin is a pipe that only the test process holds, so it ends
# whatever becomes of that process, kill -9 included.
# Each command is answered by one line: 0 if it was done.
# usage: supervisor.sh <folder with the programs> <folder of the cluster>

programs=$1 folder=$2
data=$folder/data log=$folder/log server=
# It cleans up after a killed test process by itself; the watchdog of processes would end it before.
trap '' PIPE TERM

# They may tell the tests' clients where to connect; the server's own programs must not hear it.
unset PGDATA PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS

make() {
    "$programs/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C -N >>"$log" 2>&1 </dev/null &&
        cat "$folder/settings" >>"$data/postgresql.conf"
}

# The server writes into its lock file when it is ready, also as a standby, and removes the file when it ends.
start() {
    [ -z "$server" ] || return 1
    "$programs/postgres" -D "$data" >>"$log" 2>&1 </dev/null &
    server=$!
    until grep -qs '^ready\|^standby' "$data/postmaster.pid"; do
        kill -0 "$server" 2>/dev/null || { server=; return 1; }
        sleep 0.02
    done
}

# INT lets transactions go, as an administrator does; QUIT lets nothing go, as a crash does.
stop() {
    [ -n "$server" ] && kill "-$1" "$server" && { wait "$server"; server=; }
}

make
echo $?
while read -r command; do
    case $command in
    start) start ;;
    stop) stop INT ;;
    crash) stop QUIT ;;
    esac
    echo $?
done
stop QUIT
rm -rf "$folder"
