//go:build !linux

package environment

import "syscall"

// childAttributes keeps Ctrl-C in the terminal from the controller: it reaches the
// test alone, which ends the controller.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
