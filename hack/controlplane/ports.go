package controlplane

// Free ports on 127.0.0.1 that stay free while a component is down.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports are taken below the range that the kernel hands to outgoing connections
// (from 32768 on Linux, 49152 on macOS). In it, a client's connection could take the
// port of a component that a test has just killed, and it could never come back.
const (
	firstPort = 20000
	lastPort  = 32000
)

// portLocks tells control planes of different processes which ports are taken: byte
// N of one file is locked by the process that uses port N. The kernel releases what a
// dead process held.
var portLocks struct {
	sync.Mutex
	file  *os.File // closing it would release every lock, so it stays open
	taken map[int]bool
}

// takePort reserves a port on which nobody listens, for this process alone.
func takePort() (int, error) {
	portLocks.Lock()
	defer portLocks.Unlock()
	if portLocks.file == nil {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("warmpool-controlplane-ports-%d", os.Getuid()))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return 0, fmt.Errorf("taking a port: %w", err)
		}
		portLocks.file, portLocks.taken = f, map[int]bool{}
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if portLocks.taken[port] || lockPort(port, syscall.F_WRLCK) != nil {
			continue
		}
		if listening(port) {
			_ = lockPort(port, syscall.F_UNLCK)
			continue
		}
		portLocks.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("taking a port: none of a thousand between %d and %d is free", firstPort, lastPort)
}

// releasePort gives a port back.
func releasePort(port int) {
	portLocks.Lock()
	defer portLocks.Unlock()
	delete(portLocks.taken, port)
	_ = lockPort(port, syscall.F_UNLCK)
}

func lockPort(port int, how int16) error {
	return syscall.FcntlFlock(portLocks.file.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: how, Start: int64(port), Len: 1})
}

// listening says whether the port can't be listened on.
func listening(port int) bool {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", local(port))
	if err != nil {
		return true
	}
	return l.Close() != nil
}

// local is the address of a port on this machine.
func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
