package controlplane

// What Linux knows about a process.

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// attributes puts a child into a process group of its own, so that Ctrl-C in the
// terminal reaches this program alone, which then ends the child in order. A child
// that isn't detached is killed by the kernel when this program dies.
func attributes(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// inspect answers what a process does, and a text that no other process will have:
// the boot that it belongs to and when it was started, in ticks since then. Frozen
// means that its last thread has halted.
func inspect(pid int) (identity string, state State) {
	started, letter := stat(fmt.Sprintf("/proc/%d/stat", pid))
	if letter == 0 || letter == 'Z' || letter == 'X' {
		return "", Ended
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	identity = fmt.Sprintf("%s/%s", bytes.TrimSpace(boot), started)
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		if _, letter := stat(fmt.Sprintf("/proc/%d/task/%s/stat", pid, thread.Name())); letter != 'T' {
			return identity, Running
		}
	}
	return identity, Frozen
}

// stat reads a stat file of /proc: fields 22, the start time, and 3, the state. The
// second field is the program's name in parentheses and may hold anything.
func stat(path string) (started string, letter byte) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", 0
	}
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) < 20 {
		return "", 0
	}
	return string(fields[19]), fields[0][0]
}
