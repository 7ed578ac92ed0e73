package e2e

// What artifacts/examples says is tried: the manifests, and the commands in their
// comments and in the README.

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

const examples = "artifacts/examples"

// readExample reads a file of the examples.
func readExample(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(env.Repository, examples, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// objects decodes the pool and the claim of manifests.
func objects(t *testing.T, manifests ...string) (pool v1alpha1.WarmPool, claim v1alpha1.PodClaim) {
	t.Helper()
	for _, manifest := range manifests {
		for document := range strings.SplitSeq(manifest, "\n---\n") {
			var into any
			switch {
			case strings.Contains(document, "\nkind: WarmPool\n"):
				into = &pool
			case strings.Contains(document, "\nkind: PodClaim\n"):
				into = &claim
			default:
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
				t.Fatal(err)
			}
		}
	}
	return pool, claim
}

// commands are the lines of a comment that shows how, from a heading on: "with curl".
func commands(t *testing.T, manifest, heading string) []string {
	t.Helper()
	comment := regexp.MustCompile(`(?m)^# (?:.*, )?` + heading + `\b.*:\n#\n((?:#   .*\n)+)`).FindStringSubmatch(manifest)
	if comment == nil {
		t.Fatalf("no comment says how %s", heading)
	}
	var lines []string
	for line := range strings.Lines(comment[1]) {
		lines = append(lines, strings.TrimSuffix(strings.TrimPrefix(line, "#   "), "\n"))
	}
	return lines
}

// blocks are the blocks of a language in the README, in their order.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	var found []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(readExample(t, "README.md"), -1) {
		found = append(found, match[1])
	}
	return found
}

// shell runs commands that were shown to a user, in a namespace, as a script that ends at
// the first one that fails. proxy is where kubectl proxy listens, if they need one.
func shell(t *testing.T, namespace, proxy, script string) string {
	t.Helper()
	script = strings.ReplaceAll(script, "http://127.0.0.1:8001", proxy)
	script = strings.ReplaceAll(script, "/namespaces/default/", "/namespaces/"+namespace+"/")
	ctx, cancel := context.WithTimeout(t.Context(), environment.Timeout)
	defer cancel()
	output, err := env.Shell(ctx, "set -eu\nkubectl() { command kubectl --namespace="+namespace+" \"$@\"; }\n"+script)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return output
}

// startProxy starts kubectl proxy and returns its URL. It ends with the test.
func startProxy(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl to try the commands with")
	}
	kubeconfig, err := env.ControlPlane.Kubeconfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, env.ControlPlane.Kubectl(), "--kubeconfig="+kubeconfig, "proxy", "--port=0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if address == "" {
		t.Fatalf("kubectl proxy prints %q: %v", line, err)
	}
	return "http://" + address
}

func TestExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		files []string
		// security is the Pod Security level of the namespace.
		security string
	}{
		{"the least", []string{"warmpool.yaml", "podclaim.yaml"}, "privileged"},
		{"CI runners", []string{"ci-runners.yaml"}, "baseline"},
		{"notebooks", []string{"notebooks.yaml"}, "baseline"},
		{"browser farm", []string{"browser-farm.yaml"}, "baseline"},
		{"sandbox", []string{"sandbox.yaml"}, "restricted"},
		{"game server", []string{"game-server.yaml"}, "baseline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			ns.Kubectl("label", "namespace", ns.Name, "pod-security.kubernetes.io/enforce="+c.security)
			tryExample(t, ns, c.files)
		})
	}
}

func tryExample(t *testing.T, ns *environment.Namespace, files []string) {
	var manifests []string
	apply := []string{"apply", "--dry-run=server", "--validate=strict"}
	for _, file := range files {
		manifests = append(manifests, readExample(t, file))
		apply = append(apply, "--filename="+filepath.Join(examples, file))
	}
	pool, claim := objects(t, manifests...)
	ns.Kubectl(apply...)
	ns.StartKubelet()
	ns.StartController()

	// With kubectl. The last command frees the claim.
	comment := manifests[len(manifests)-1]
	lines := commands(t, comment, "with kubectl")
	last := len(lines) - 1
	if output := shell(t, ns.Name, "", strings.Join(lines[:last], "\n")); !strings.Contains(output, pool.Name+"-") {
		t.Errorf("the commands print no name of a Pod:\n%s", output)
	}
	ns.WaitBound(claim.Name)
	ns.WaitPool(pool.Name, *pool.Spec.Replicas, 1)
	ns.WaitPods(int(*pool.Spec.Replicas) + 1)
	shell(t, ns.Name, "", lines[last])
	ns.WaitPool(pool.Name, *pool.Spec.Replicas, 0)
	ns.WaitPods(int(*pool.Spec.Replicas))

	// With Go. That it works is shown for one pool, by TestTheGoOfTheExamples.
	want := fmt.Sprintf(`c, err := claim.New(clientset, "default").Acquire(ctx, claim.Options{Pool: %q})`, pool.Name)
	if lines := commands(t, comment, "with Go"); !slices.Contains(lines, want) {
		t.Errorf("with Go it is %q, want %q", lines, want)
	}

	t.Run("with curl", func(t *testing.T) {
		proxy := startProxy(t)
		output := shell(t, ns.Name, proxy, strings.Join(commands(t, comment, "with curl"), "\n"))
		if !regexp.MustCompile(`"pod": \{\s+"name": "` + pool.Name + `-`).MatchString(output) {
			t.Errorf("the commands print no name of a Pod:\n%s", output)
		}
		ns.WaitPool(pool.Name, *pool.Spec.Replicas, 0)
		if claims := ns.Claims(); len(claims) > 0 {
			t.Errorf("the commands leave claims behind: %v", claims)
		}
	})
}

// What makes the sandbox one, beside what Pod Security demands.
func TestTheSandboxOfTheExamplesIsClosed(t *testing.T) {
	t.Parallel()
	manifest := readExample(t, "sandbox.yaml")
	pool, _ := objects(t, manifest)
	var policy networkingv1.NetworkPolicy
	first, _, _ := strings.Cut(manifest, "\n---\n") // before any Pod can run
	if err := yaml.UnmarshalStrict([]byte(first), &policy); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(policy.Spec.PodSelector.MatchLabels), "map[warmpool.dev/pool:"+pool.Name+"]"; got != want {
		t.Errorf("the policy is for Pods with %s, want %s", got, want)
	}
	if types := fmt.Sprint(policy.Spec.PolicyTypes); types != "[Ingress Egress]" || len(policy.Spec.Ingress) > 0 {
		t.Errorf("the policy is about %s and lets in %v, want both ways, and nothing let in", types, policy.Spec.Ingress)
	}
	for _, rule := range policy.Spec.Egress {
		for _, port := range rule.Ports {
			if port.Port.IntValue() != 53 || len(rule.To) == 0 {
				t.Errorf("the policy lets out to %v, port %s, want DNS alone", rule.To, port.Port)
			}
		}
		if len(rule.Ports) == 0 {
			t.Errorf("the policy lets out to %v, all ports", rule.To)
		}
	}
	spec := pool.Spec.Template.Spec
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		t.Error("the sandbox is given a service account's token")
	}
	for _, container := range spec.Containers {
		if readOnly := container.SecurityContext.ReadOnlyRootFilesystem; readOnly == nil || !*readOnly {
			t.Errorf("container %s can write to its root file system", container.Name)
		}
		for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if _, limited := container.Resources.Limits[resource]; !limited {
				t.Errorf("container %s has no limit of %s", container.Name, resource)
			}
		}
	}
	if limits := pool.Spec.ClaimLifetime; limits == nil || limits.Default == nil || limits.Maximum == nil {
		t.Errorf("programs may run for %v, want a default and a maximum", limits)
	}
}

func TestTheReadmeOfTheExamples(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	scripts := blocks(t, "sh")
	if len(scripts) != 2 {
		t.Fatalf("the README has %d blocks of commands, want kubectl's and curl's", len(scripts))
	}
	shell(t, ns.Name, "", scripts[0])
	ns.WaitPool("runners", 5, 0)
	t.Run("with curl", func(t *testing.T) {
		output := shell(t, ns.Name, startProxy(t), scripts[1])
		if !strings.Contains(output, `"pod":{"name":"runners-`) {
			t.Errorf("the commands print no name of a Pod:\n%s", output)
		}
		ns.WaitPool("runners", 5, 0)
	})
	if claims := ns.Claims(); len(claims) > 0 {
		t.Errorf("claims are left behind: %v", claims)
	}

	files, err := filepath.Glob(filepath.Join(env.Repository, examples, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		if name := filepath.Base(file); !strings.Contains(readExample(t, "README.md"), "("+name+")") {
			t.Errorf("the README doesn't name %s", name)
		}
	}
}
