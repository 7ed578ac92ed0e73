package controlplane

// Locks between processes, and waiting.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// errLocked is what tryLock answers when another process holds the lock.
var errLocked = errors.New("another process holds the lock")

// tryLock takes the lock on the file at path, which it creates if need be. Closing
// the file gives the lock back; the kernel does so for a process that dies.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errLocked
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// lockFile takes the lock on the file at path as soon as it is free, and returns what
// gives it back. Who has to wait is told so through progress.
func lockFile(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	var f *os.File
	told := false
	err = poll(ctx, 100*time.Millisecond, func() (bool, error) {
		f, err = tryLock(path)
		if !errors.Is(err, errLocked) {
			return err == nil, err
		}
		if !told {
			told = true
			fmt.Fprintf(progress, "another process holds %s: waiting for it\n", path)
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// poll calls done at once and then every interval until it answers true or an error,
// or until ctx ends, whose cause it then returns.
func poll(ctx context.Context, interval time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
