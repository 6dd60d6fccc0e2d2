# The life of a private PostgreSQL cluster: made at the start, started and stopped by a word on
# stdin, gone when stdin ends. Stdin is a pipe that only the test process holds, so it ends
# whatever becomes of that process, kill -9 included.
# Each command is answered by one line with its exit code.
# usage: sh -c "$this_file" supervisor <folder with the programs> <folder of the cluster>

programs=$1 folder=$2
data=$folder/data log=$folder/log
trap '' PIPE

# The tests' clients may be told where to connect by these; the server's own programs must not be.
unset PGDATA PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS

control() {
    "$programs/pg_ctl" -D "$data" -l "$log" -s -w -t 60 "$@" >>"$log" 2>&1 </dev/null
}

"$programs/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C -N >>"$log" 2>&1 </dev/null &&
    cat "$folder/settings" >>"$data/postgresql.conf"
echo $?

while read -r command; do
    case $command in
    start) control start ;;
    # Lets transactions go, as an administrator does.
    stop) control -m fast stop ;;
    # Lets nothing go, as a crash does.
    crash) control -m immediate stop ;;
    esac
    echo $?
done

control -m immediate stop
rm -rf "$folder"
