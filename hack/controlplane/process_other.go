//go:build !linux

package controlplane

// What ps knows about a process, where there is no /proc.

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// attributes puts a child into a process group of its own, so that Ctrl-C in the
// terminal reaches this program alone. There is no parent-death signal here: when
// this program is killed outright, its children stay, and Down or the next Start
// with a temporary folder ends them.
func attributes(detached bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: detached, Setpgid: !detached}
}

// inspect answers what a process does, and when it was started, by which it is told
// from a later one with the same pid.
func inspect(pid int) (identity string, state State) {
	out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	letters, started, found := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !found || letters[0] == 'Z' {
		return "", Ended
	}
	if letters[0] == 'T' {
		return strings.TrimSpace(started), Frozen
	}
	return strings.TrimSpace(started), Running
}
