package controlplane

// What the tests stand on: one control plane for those that only use it, requests as
// a user, and this test binary started again as another program.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// shared has two API servers. Tests that break something start their own.
var shared *ControlPlane

// programEnv names the part that this binary plays when a test starts it again.
const programEnv = "CONTROLPLANE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if name := os.Getenv(programEnv); name != "" {
		if err := programs[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	_ = os.Unsetenv(SharedVariable) // these tests look into the folder of their own
	options := Options{APIServers: 2, Users: []User{{Name: "jane", Groups: []string{"builders"}}, {Name: "guest"}}}
	os.Exit(RunTests(m, options, func(cp *ControlPlane) { shared = cp }))
}

// programs are other programs that use this package.
var programs = map[string]func(args []string) error{}

// program starts this binary as another program and returns what it printed.
func program(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"="+name)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// ask makes one request at an API server and returns the answer's code and object.
func ask(ctx context.Context, t *testing.T, s *APIServer, user, method, path string, body any) (int, map[string]any, error) {
	t.Helper()
	account, err := find(s.accounts, user)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(s.layout.caCert())
	if err != nil {
		t.Fatal(err)
	}
	client, err := newClient(ca)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+account.Token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(content, &object); err != nil {
		object = map[string]any{"body": string(content)}
	}
	return res.StatusCode, object, nil
}

// expect makes one request and fails the test if the answer's code is another one.
func expect(t *testing.T, code int, s *APIServer, user, method, path string, body any) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, object, err := ask(ctx, t, s, user, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	if got != code {
		t.Fatalf("%s %s as %s answered %d, want %d: %v", method, path, user, got, code, object)
	}
	return object
}

// configMap is something to write.
func configMap(name, value string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name},
		"data":     map[string]any{"value": value},
	}
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// eventually waits until ok answers true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := poll(ctx, 20*time.Millisecond, func() (bool, error) { return ok(), nil }); err != nil {
		t.Fatalf("never happened: %s", what)
	}
}

// assertGone fails the test if anything of a control plane is left: a process that
// has its folder in its command line, or the folder.
func assertGone(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "pid,stat,args").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, dir) {
			t.Errorf("a process is left: %s", line)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder %s is left (%v)", dir, err)
	}
}
