package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStopLeavesNoProcessNoFolderAndNoListener(t *testing.T) {
	begun := time.Now()
	cp, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("etcd and kube-apiserver were ready after %s", time.Since(begun).Round(time.Millisecond))
	for _, p := range cp.Processes() {
		if got := p.State(); got != Running {
			t.Errorf("%s is %s, want running", p.Name, got)
		}
	}
	if err := cp.Stop(); err != nil {
		t.Fatal(err)
	}
	assertGone(t, cp.Dir)
	for _, p := range cp.Processes() {
		if got := p.State(); got != Ended {
			t.Errorf("%s is %s, want ended", p.Name, got)
		}
		var port int
		if _, err := fmt.Sscanf(p.Address, "127.0.0.1:%d", &port); err != nil || listening(port) {
			t.Errorf("%s still listens on %s (%v)", p.Name, p.Address, err)
		}
	}
	if err := cp.Stop(); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

func TestEverythingStartsAndADeploymentsPodsBecomeReady(t *testing.T) {
	begun := time.Now()
	cp := ForTest(t, Full(2))
	t.Logf("all five components and two nodes were ready after %s", time.Since(begun).Round(time.Millisecond))
	kubeconfig, err := cp.Kubeconfig(Admin)
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), cp.Kubectl(), args...)
		cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + t.TempDir()}
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	kubectl(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
`, "apply", "-f", "-")
	kubectl("", "rollout", "status", "deployment/web", "--timeout=60s")
	if got := kubectl("", "get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"); got != "3" {
		t.Errorf("%s Pods are ready, want 3", got)
	}
	kubectl("", "delete", "deployment", "web", "--wait", "--cascade=foreground", "--timeout=60s")
	if got := kubectl("", "get", "pods", "-o", "name"); strings.Contains(got, "pod/") {
		t.Errorf("the garbage collector and kwok left Pods: %s", got)
	}
	if got := kubectl("", "version", "-o", "json"); strings.Count(got, `"gitVersion": "v1.37.2"`) != 2 {
		t.Errorf("client and server aren't both v1.37.2: %s", got)
	}
}

func TestExtraFlagsOfTheAPIServersAreAddedToTheOthers(t *testing.T) {
	cp := ForTest(t, Options{APIServers: 2, APIServerFlags: []string{"--feature-gates=WatchList=false"}})
	for _, s := range cp.APIServers {
		metrics := expect(t, 200, s, Admin, http.MethodGet, "/metrics", nil)["body"].(string)
		for _, want := range []string{
			`kubernetes_feature_enabled{name="WatchList",stage="BETA"} 0`,
			`kubernetes_feature_enabled{name="APIServerIdentity",stage="BETA"} 0`, // set by Start itself
		} {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics of %s lack %s", s.Name, want)
			}
		}
	}
}

func TestTwoAPIServersSeeEachOthersWrites(t *testing.T) {
	for i, name := range []string{"from-0", "from-1"} {
		writer, reader := shared.APIServers[i], shared.APIServers[1-i]
		expect(t, 201, writer, Admin, http.MethodPost, configMaps, configMap(name, "x"))
		got := expect(t, 200, reader, Admin, http.MethodGet, configMaps+"/"+name, nil)
		if value := got["data"].(map[string]any)["value"]; value != "x" {
			t.Errorf("%s read %v at the other server, want x", name, value)
		}
	}
}

func TestAFailedStartQuotesTheLogAndLeavesNothing(t *testing.T) {
	tests := map[string]struct {
		options Options
		want    []string
	}{
		"a component that ends": {
			options: Options{APIServerFlags: []string{"--no-such-flag"}},
			want:    []string{"kube-apiserver-0 ended before it was ready: exit status 1", "unknown flag: --no-such-flag"},
		},
		"a component that never becomes ready": {
			options: Options{
				ReadyTimeout: 6 * time.Second,
				// Port 1 stands for an etcd that can't be reached.
				EtcdFor: func(int, string) (string, error) { return "http://127.0.0.1:1", nil },
			},
			want: []string{"kube-apiserver-0 isn't ready after 6", "the end of its log:", "127.0.0.1:1"},
		},
		"a proxy that can't be made": {
			options: Options{EtcdFor: func(int, string) (string, error) { return "", errors.New("no proxy today") }},
			want:    []string{"asking where kube-apiserver-0 finds etcd: no proxy today"},
		},
		"binaries that aren't there": {
			options: Options{Binaries: "nowhere"},
			want:    []string{"starting etcd", "nowhere/etcd", "no such file"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.options.Dir = filepath.Join(t.TempDir(), "data")
			_, err := Start(t.Context(), test.options)
			if err == nil {
				t.Fatal("it started")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
			assertGone(t, test.options.Dir)
		})
	}
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	dir := filepath.Join(t.TempDir(), "data")
	_, err := Start(ctx, Options{Dir: dir, EtcdFor: func(_ int, etcd string) (string, error) {
		cancel(errors.New("changed my mind"))
		return etcd, nil
	}})
	if err == nil || !strings.Contains(err.Error(), "changed my mind") {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
	assertGone(t, dir)
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	tests := map[string]struct {
		options Options
		want    string
	}{
		"a negative number of servers": {Options{APIServers: -1}, "APIServers is -1"},
		"a negative number of nodes":   {Options{Nodes: -1}, "Nodes is -1"},
		"links that would end":         {Options{EtcdLinks: true, Detached: true}, "leave out one of them"},
		"a user without a name":        {Options{Users: []User{{}}}, "set User.Name"},
		"a user who exists":            {Options{Users: []User{{Name: Admin}}}, "is predefined"},
		"a comma in a name":            {Options{Users: []User{{Name: "a,b"}}}, "holds a comma"},
		"a comma in a group":           {Options{Users: []User{{Name: "a", Groups: []string{"b,c"}}}}, "holds a comma"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Start(t.Context(), test.options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestAFolderInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "isn't empty") {
		t.Errorf("got %v, want a refusal of a folder that isn't empty", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "thesis.txt")); err != nil {
		t.Errorf("the refused start removed a file: %v", err)
	}
	if _, err := Start(t.Context(), Options{Dir: shared.Dir}); !errors.Is(err, ErrAlreadyUp) {
		t.Errorf("got %v, want ErrAlreadyUp", err)
	}
}

func TestUsersAreWhoTheySayAndMayWhatRBACSays(t *testing.T) {
	s := shared.APIServers[0]
	path := "/api/v1/namespaces/default/secrets"
	expect(t, 403, s, "jane", http.MethodGet, path, nil)
	expect(t, 201, s, Admin, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": "builders"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-edit"},
		"subjects": []any{
			map[string]any{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "builders"},
			// A service account's manifest names it this way.
			map[string]any{"kind": "ServiceAccount", "namespace": "warmpool-system", "name": "warmpool-controller"},
		},
	})
	for _, user := range []string{"jane", Controller} {
		eventually(t, user+" is allowed", func() bool {
			code, _, err := ask(t.Context(), t, s, user, http.MethodGet, path, nil)
			return err == nil && code == 200
		})
	}
	if _, err := shared.Kubeconfig("nobody"); err == nil || !strings.Contains(err.Error(), `no user "nobody"`) {
		t.Errorf("got %v, want an error that names the user", err)
	}
	if _, err := shared.Token("nobody"); err == nil {
		t.Error("a user who doesn't exist has a token")
	}
}

func TestAKubeconfigNamesItsOwnServerAndChecksItsCertificate(t *testing.T) {
	for i, s := range shared.APIServers {
		path, err := s.Kubeconfig(Controller)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"server: " + s.URL, `certificate-authority: "` + shared.CAFile + `"`} {
			if !strings.Contains(string(content), want) {
				t.Errorf("the kubeconfig for server %d lacks %q:\n%s", i, want, content)
			}
		}
		cmd := exec.CommandContext(t.Context(), shared.Kubectl(), "--kubeconfig", path, "auth", "whoami", "-o", "jsonpath={.status.userInfo}")
		cmd.Env = []string{"HOME=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{Controller, "system:serviceaccounts:warmpool-system", "system:authenticated"} {
			if !strings.Contains(string(out), `"`+want+`"`) {
				t.Errorf("the server doesn't see %s: %s", want, out)
			}
		}
	}
}
