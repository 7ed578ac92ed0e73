package lab

// How a guard is taken out.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// edit replaces a piece of one of the controller's source files, which must be in it exactly
// once.
type edit struct{ file, old, new string }

// overlay writes the files that the edits make, and what go build's flag -overlay takes, into
// folder, and returns the path of the latter.
func overlay(repository, folder string, edits []edit) (string, error) {
	changed := map[string]string{}
	for _, e := range edits {
		source, ok := changed[e.file]
		if !ok {
			content, err := os.ReadFile(filepath.Join(repository, e.file))
			if err != nil {
				return "", fmt.Errorf("take a line out of %s: %w", e.file, err)
			}
			source = string(content)
		}
		if n := strings.Count(source, e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times, and not once, the line\n%s\nadapt the lab", e.file, n, e.old)
		}
		changed[e.file] = strings.Replace(source, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for file, content := range changed {
		path := filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", fmt.Errorf("write %s without a line: %w", file, err)
		}
		replace[filepath.Join(repository, file)] = path
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	path := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return path, nil
}
