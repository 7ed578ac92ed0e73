package environment

// The control plane with what is installed on it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"warmpool.dev/controller/hack/controlplane"
	clientset "warmpool.dev/controller/pkg/generated/clientset/versioned"
)

// Environment is a control plane and the clients of its administrator. It is safe
// for concurrent use.
type Environment struct {
	ControlPlane *controlplane.ControlPlane
	// Config is the administrator's, without a limit on requests per second.
	Config   *rest.Config
	Kube     kubernetes.Interface
	Warmpool clientset.Interface
	// Repository is the folder of this repository.
	Repository string

	// node is the name of the node that Pods run on; empty: there is none.
	node string
}

// RunTests is the whole of a TestMain: it gets a control plane (a shared one where
// the environment names one, see package controlplane), installs the warm pool on
// it, hands it to use, runs the tests and returns the exit code.
func RunTests(m interface{ Run() int }, use func(*Environment)) int {
	defer removeBinary()
	var cp *controlplane.ControlPlane
	tests := runFunc(func() int {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		env, err := New(cp)
		if err == nil {
			_, err = controllerBinary() // here, so that no test's time is spent on it
		}
		if err == nil {
			err = env.equip(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		use(env)
		code := m.Run()
		if err := env.removeNode(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return max(code, 1)
		}
		return code
	})
	return controlplane.RunTests(tests, controlplane.Options{ControllerManager: true}, func(c *controlplane.ControlPlane) { cp = c })
}

type runFunc func() int

// Run implements what controlplane.RunTests wants of a testing.M.
func (f runFunc) Run() int { return f() }

// ForTest starts a control plane for one test that breaks it, or that wants nothing
// to be installed yet. Nobody runs Pods on it.
func ForTest(t *testing.T, options controlplane.Options) *Environment {
	t.Helper()
	env, err := New(controlplane.ForTest(t, options))
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// ForTestInstalled starts a control plane for one test, and those within it, that breaks
// it. The warm pool is installed there, and there is a node for a kubelet to play.
func ForTestInstalled(t *testing.T, options controlplane.Options) *Environment {
	t.Helper()
	options.ControllerManager = true // or namespaces had no service accounts
	env := ForTest(t, options)
	if err := env.equip(t.Context()); err != nil {
		t.Fatal(err)
	}
	return env
}

// equip installs the warm pool and starts a node, which lives until ctx ends.
func (e *Environment) equip(ctx context.Context) error {
	if err := e.Install(ctx); err != nil {
		return err
	}
	// The garbage collector asks every half minute only which kinds there are, and would
	// leave what a deleted pool owns alone until then.
	if manager := e.ControlPlane.ControllerManager; manager != nil {
		if err := manager.Restart(ctx); err != nil && !errors.Is(err, controlplane.ErrShared) {
			return fmt.Errorf("restart the controller manager: %w", err)
		}
	}
	return e.startNode(ctx)
}

// New returns the clients of cp's administrator. Nothing is installed.
func New(cp *controlplane.ControlPlane) (*Environment, error) {
	repository, err := controlplane.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	config, err := clientConfig(cp, controlplane.Admin)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the administrator's client: %w", err)
	}
	warmpool, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the administrator's client: %w", err)
	}
	return &Environment{ControlPlane: cp, Config: config, Kube: kube, Warmpool: warmpool, Repository: repository}, nil
}

// clientConfig is how user reaches the control plane, without client-go's limit of
// five requests a second.
func clientConfig(cp *controlplane.ControlPlane, user string) (*rest.Config, error) {
	path, err := cp.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", user, err)
	}
	config.QPS = -1
	return config, nil
}

// Install installs the definitions, the namespace and the rights as the README says,
// but for the Deployment, whose image nobody could run here.
func (e *Environment) Install(ctx context.Context) error {
	crds := filepath.Join(e.Repository, "artifacts", "crds")
	deploy, err := filepath.Glob(filepath.Join(e.Repository, "artifacts", "deploy", "*.yaml"))
	if err != nil || len(deploy) == 0 {
		return fmt.Errorf("install the warm pool: no manifests in artifacts/deploy (%w)", err)
	}
	apply := []string{"apply", "--filename=" + crds}
	for _, file := range deploy {
		if !strings.Contains(filepath.Base(file), "deployment") {
			apply = append(apply, "--filename="+file)
		}
	}
	if _, err := e.Kubectl(ctx, apply...); err != nil {
		return fmt.Errorf("install the warm pool: %w", err)
	}
	return e.WaitInstalled(ctx)
}

// WaitInstalled waits until the API server serves the definitions that were applied.
func (e *Environment) WaitInstalled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		_, pools := e.Warmpool.WarmpoolV1alpha1().WarmPools("").List(ctx, metav1.ListOptions{Limit: 1})
		_, claims := e.Warmpool.WarmpoolV1alpha1().PodClaims("").List(ctx, metav1.ListOptions{Limit: 1})
		if pools == nil && claims == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the definitions to be served: %w", errors.Join(pools, claims))
		}
	}
}

// Kubectl runs kubectl as the administrator, in the repository's folder, and returns
// what it prints. The error holds what it complains of.
func (e *Environment) Kubectl(ctx context.Context, args ...string) (string, error) {
	return e.run(ctx, e.ControlPlane.Kubectl(), args...)
}

// Shell runs a command line that was shown to a user, with this control plane's
// kubectl, as the administrator, in the repository's folder.
func (e *Environment) Shell(ctx context.Context, command string) (string, error) {
	return e.run(ctx, "sh", "-c", command)
}

func (e *Environment) run(ctx context.Context, program string, args ...string) (string, error) {
	kubeconfig, err := e.ControlPlane.Kubeconfig(controlplane.Admin)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = e.Repository
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+kubeconfig,
		"PATH="+filepath.Dir(e.ControlPlane.Kubectl())+string(os.PathListSeparator)+os.Getenv("PATH"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return string(stdout), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(stdout), nil
}
