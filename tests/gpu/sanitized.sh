#!/usr/bin/env bash
# What sanitize.sh sources: a run of a tool of compute-sanitizer, and the files that it leaves.

# Sets `command`: the tool on a program, for at most so many seconds.
tool_command() { # SECONDS TOOL PROGRAM…
  command=(timeout "$1" compute-sanitizer --tool "$2" --error-exitcode 1 --print-limit 20 "${@:3}")
}

# Runs a tool. FOLDER/TOOL-BUILD-PART.log is what it printed; .status says how it ended, and after how many seconds.
# tests.gpu.tables reads both.
sanitized() { # FOLDER SECONDS TOOL BUILD PART PROGRAM…
  local log=$1/$3-$4-$5 start=$SECONDS code=0 command
  tool_command "$2" "$3" "${@:6}"
  "${command[@]}" >"$log.log" 2>&1 || code=$?
  # a tool that could not watch a launch says so, and then ends as if it had found nothing
  if grep -q "Internal Sanitizer Error" "$log.log"; then code=1; fi
  echo "$3 $4 $5 $code $((SECONDS - start))" >"$log.status"
  return "$code"
}
