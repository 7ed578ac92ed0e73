package environment

// The controller's program, built once in a process: with the race detector if the
// tests have it, so that `go test -race` watches both. And programs of other sources.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"warmpool.dev/controller/hack/controlplane"
)

// binary is where the program is, once it was asked for.
var binary struct {
	sync.Mutex
	path string
	err  error
}

// controllerBinary builds the program, the first time, and returns its path.
func controllerBinary() (string, error) {
	binary.Lock()
	defer binary.Unlock()
	if binary.path == "" && binary.err == nil {
		binary.path, binary.err = buildController()
	}
	return binary.path, binary.err
}

func buildController() (string, error) {
	folder, err := os.MkdirTemp("", "warmpool-controller-")
	if err != nil {
		return "", fmt.Errorf("build the controller: %w", err)
	}
	path := filepath.Join(folder, "warmpool-controller")
	if err := buildAt(path); err != nil {
		_ = os.RemoveAll(folder) // the build's error is the one to report
		return "", err
	}
	return path, nil
}

// BuildController builds the controller's program from sources some of which are replaced
// as overlay says, a file for go build's flag of that name, and returns the program's path.
// It is removed when the test ends. LaunchBinary runs it.
func BuildController(t testing.TB, overlay string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "warmpool-controller")
	if err := buildAt(path, "-overlay="+overlay); err != nil {
		t.Fatal(err)
	}
	return path
}

// buildAt builds the program.
func buildAt(path string, flags ...string) error {
	repository, err := controlplane.RepositoryRoot()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-o", path}, flags...)
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = repository
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the controller: %w\n%s", err, output)
	}
	return nil
}

// removeBinary removes the program when the tests are over.
func removeBinary() {
	binary.Lock()
	defer binary.Unlock()
	if binary.path != "" {
		_ = os.RemoveAll(filepath.Dir(binary.path)) // the system clears the temporary folder too
		binary.path = ""
	}
}
