# Ends the processes of a test program when that program ends, kill -9 included: stdin is a pipe that
# only the program holds. It names each process when it starts one (+ ID) and when it has ended one (- ID).
processes=' '
while read -r change id; do
    case $change in
    +) processes="$processes$id " ;;
    -) processes="${processes%% "$id" *} ${processes#* "$id" }" ;;
    esac
done
# A stopped process gets its signal when it continues.
for id in $processes; do
    kill -TERM "$id"
    kill -CONT "$id"
done
