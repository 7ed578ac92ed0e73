package e2e

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
)

// syncTimeout is short here, so that the test doesn't wait for the default.
const syncTimeout = "--cache-sync-timeout=3s"

// command finds the command in a message that says what to do.
var command = regexp.MustCompile(`kubectl apply -f [a-z/]+`)

// Somebody starts the controller on a bare control plane, and does what he is told
// until it works.
func TestAStartThatCanNotSucceedSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	e := environment.ForTest(t, controlplane.Options{})
	shell := func(command string) {
		t.Helper()
		if _, err := e.Shell(t.Context(), command); err != nil {
			t.Fatal(err)
		}
	}

	// Nothing is installed: not even the lease may be read.
	flags := []string{syncTimeout, "--leader-elect-namespace=warmpool-system"}
	message := failedStart(t, e, flags...)
	if want := `read the lease warmpool-system/warmpool-controller: leases.coordination.k8s.io "warmpool-controller" is forbidden`; !strings.Contains(message, want) {
		t.Errorf("without rights the controller says\n%s\nwant in it\n%s", message, want)
	}
	mend(t, message, "kubectl apply -f artifacts/deploy", shell)

	// The rights are there, the definitions aren't.
	message = failedStart(t, e, flags...)
	for _, want := range []string{
		"2 of 3 caches not synced within 3s",
		"warmpools.warmpool.dev: the API server doesn't know this resource (the server could not find the requested resource (get warmpools.warmpool.dev)); install its definition: kubectl apply -f artifacts/crds",
		"podclaims.warmpool.dev: the API server doesn't know this resource (the server could not find the requested resource (get podclaims.warmpool.dev)); install its definition: kubectl apply -f artifacts/crds",
	} {
		if !strings.Contains(message, want) {
			t.Errorf("without definitions the controller says\n%s\nwant in it\n%s", message, want)
		}
	}
	mend(t, message, "kubectl apply -f artifacts/crds", shell)
	if err := e.WaitInstalled(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Somebody has taken the right to Pods out of the role.
	roles := e.Kube.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "warmpool-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") })
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	message = failedStart(t, e, flags...)
	want := `pods: forbidden (pods is forbidden: User "system:serviceaccount:warmpool-system:warmpool-controller" cannot list resource "pods" in API group "" at the cluster scope); grant list and watch: kubectl apply -f artifacts/deploy`
	if !strings.Contains(message, "1 of 3 caches not synced within 3s") || !strings.Contains(message, want) {
		t.Errorf("without the right to Pods the controller says\n%s\nwant in it\n%s", message, want)
	}
	mend(t, message, "kubectl apply -f artifacts/deploy", shell)

	// And with all of it, it works.
	e.LaunchController(t, flags...).WaitLeading()
}

// failedStart starts the controller, expects it to end by itself with exit code 1,
// soon after the time that it was given, and never to be ready, and returns its log.
func failedStart(t *testing.T, e *environment.Environment, flags ...string) (message string) {
	t.Helper()
	begun := time.Now()
	c := e.LaunchController(t, flags...)
	environment.Eventually(t, "the controller to end", func() error {
		if c.Ended() {
			return nil
		}
		if state, err := c.State(); err == nil && state == environment.Leading {
			t.Errorf("the controller says that it is ready (%s)", state)
		}
		return errors.New("it runs")
	})
	if code := c.WaitForEnd(); code != 1 {
		t.Errorf("the controller ended with exit code %d, want 1", code)
	}
	t.Logf("the controller ended after %s", time.Since(begun).Round(time.Millisecond))
	return strings.ReplaceAll(c.Log(), `\"`, `"`) // klog quotes an error of one line
}

// mend finds the command in a message and does what it says.
func mend(t *testing.T, message, want string, shell func(command string)) {
	t.Helper()
	found := command.FindString(message)
	if found != want {
		t.Fatalf("the controller names the command %q, want %q, in\n%s", found, want, message)
	}
	shell(found)
}

func TestAnAPIServerThatCanNotBeReachedIsNamed(t *testing.T) {
	t.Parallel()
	// An address at which nobody listens.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	original, err := env.ControlPlane.Kubeconfig(controlplane.Controller)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	moved := strings.Replace(string(content), env.ControlPlane.URL(), "https://"+nowhere, 1)
	if err := os.WriteFile(kubeconfig, []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}

	message := failedStart(t, env, "--kubeconfig="+kubeconfig, syncTimeout, "--leader-elect=false")
	for _, want := range []string{
		"3 of 3 caches not synced within 3s",
		"pods: unreachable", nowhere, "connection refused",
		"the API server can't be reached at the configured address, try: kubectl get --raw /readyz",
	} {
		if !strings.Contains(message, want) {
			t.Errorf("the controller says\n%s\nwant in it\n%s", message, want)
		}
	}
	message = failedStart(t, env, "--kubeconfig="+kubeconfig, syncTimeout)
	if !strings.Contains(message, "read the lease default/warmpool-controller:") || !strings.Contains(message, "connection refused: check that the API server can be reached") {
		t.Errorf("with leader election the controller says\n%s", message)
	}
}

// A mistake on the command line is answered at once, with what to do.
func TestABadFlagIsRefused(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }() // it only holds the port
	for flag, want := range map[string]string{
		"--workers=0":                               "--workers is 0: give at least 1",
		"--cache-sync-timeout=0s":                   "--cache-sync-timeout is 0s: give a positive duration, such as 15s",
		"--kube-api-qps=0":                          "--kube-api-qps is 0 and --kube-api-burst is 400: give positive numbers",
		"--leader-elect-lease-duration=1s":          "--leader-elect-retry-period (2s), --leader-elect-renew-deadline (10s) and --leader-elect-lease-duration (1s): give each more than the one before",
		"--kubeconfig=/does/not/exist/config":       "find the API server: stat /does/not/exist/config: no such file or directory (outside a cluster, give --kubeconfig)",
		"--listen-address=" + taken.Addr().String(): "give another --listen-address, or an empty one for none",
	} {
		t.Run(flag, func(t *testing.T) {
			if message := failedStart(t, env, flag, "--leader-elect-namespace=warmpool-system"); !strings.Contains(message, want) {
				t.Errorf("the controller says\n%s\nwant in it\n%s", message, want)
			}
		})
	}
}
