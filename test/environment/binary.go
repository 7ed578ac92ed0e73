package environment

// The controller's program, built once in a process: with the race detector if the
// tests have it, so that `go test -race` watches both.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

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
	repository, err := controlplane.RepositoryRoot()
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "warmpool-controller-")
	if err != nil {
		return "", fmt.Errorf("build the controller: %w", err)
	}
	path := filepath.Join(folder, "warmpool-controller")
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = repository
	if output, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(folder) // the build's error is the one to report
		return "", fmt.Errorf("build the controller: %w\n%s", err, output)
	}
	return path, nil
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
