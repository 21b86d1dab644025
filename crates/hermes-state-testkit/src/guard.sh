# Runs a program, and ends it when the process that wanted it has died: that process holds the other end of our input.
# Arguments: the folder that is to go with it, then the program with its arguments.
folder=$1
shift
exec 3<&0 </dev/null

# The guard. In a subshell that ends at once, so that it is no child of the program, which would wonder about it.
(
  {
    trap '' HUP INT TERM
    cd /
    running=1 keep=
    while read -r word; do
      case $word in
      ended) running= ;;
      keep) keep=1; break ;;
      remove) break ;;
      esac
    done
    [ -z "$keep" ] || exit 0
    if [ -n "$running" ]; then
      # The program has taken this shell's place, and its number.
      kill -QUIT $$
      # A postmaster takes 5 seconds at most. initdb finishes first: if its folder went away under the server that it
      # runs, that would die and leave shared memory behind.
      tries=300
      # What has ended and nobody waits for is in state Z for good, where the first process of a container is no init.
      while [ "$tries" -gt 0 ] && sed 's/.*) //' "/proc/$$/stat" | grep -q '^[^ZX]'; do
        tries=$((tries - 1))
        sleep 0.1
      done
      kill -KILL $$
    fi
    # A postmaster that was killed leaves its block of shared memory behind, which its file names.
    block=$(sed -n 7p "$folder/data/postmaster.pid" | sed 's/.* //')
    [ -z "$block" ] || ipcrm -m "$block"
    # Processes that outlived their parent by a moment may still write.
    tries=20
    until rm -rf "$folder" || [ "$tries" = 0 ]; do
      tries=$((tries - 1))
      sleep 0.1
    done
  } <&3 3<&- >/dev/null 2>&1 &
)
exec 3<&-
exec "$@"
