package controlplane

// What a control plane is made of: the choices that a caller has.

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Users that every control plane knows.
const (
	// Admin may do everything (group system:masters).
	Admin = "admin"
	// Controller is the service account that artifacts/deploy gives the warm pool
	// controller. It may do what the RBAC manifests there allow, once applied.
	Controller = "system:serviceaccount:warmpool-system:warmpool-controller"
)

// Options choose the parts of a control plane. The zero value is etcd and one
// kube-apiserver in a temporary folder.
type Options struct {
	// Dir is the folder for data, keys, logs and kubeconfigs. It must not exist or
	// be empty, and Stop removes it. Empty: a temporary folder.
	Dir string
	// Binaries is the folder that holds the six binaries. Empty: Build makes them.
	Binaries string
	// Progress is told about the build and each step of the start. Nil: nobody is.
	Progress io.Writer

	// APIServers is how many kube-apiservers to start on the one etcd. 0 means 1.
	APIServers int
	// APIServerFlags go last on each kube-apiserver's command line, for example
	// "--feature-gates=WatchList=false" or "--storage-media-type=application/json".
	APIServerFlags []string
	// EtcdFor answers where API server number i finds etcd, so that a test can put a
	// proxy between the two. It is called once for each server, after etcd is ready,
	// with etcd's own URL. Nil: every API server talks to etcd itself.
	EtcdFor func(i int, etcdURL string) (string, error)
	// EtcdLinks puts a link between each API server and etcd, for a test to cut:
	// APIServer.EtcdLink. It lives in this process, so it can't be had with Detached.
	EtcdLinks bool
	// NoAudit switches the audit logs off; then Writes has nothing to tell.
	NoAudit bool

	// ControllerManager starts kube-controller-manager: garbage collector, built-in
	// workloads, service accounts of namespaces. Without it the API servers run
	// without the admission plugins ServiceAccount and TaintNodesByCondition, since
	// nobody would create the accounts or take the taints away; and the cluster roles
	// admin, edit and view are empty, since nobody aggregates them.
	ControllerManager bool
	// Scheduler starts kube-scheduler.
	Scheduler bool
	// Nodes is how many simulated nodes to create. Above 0, kwok is started and makes
	// every Pod on them Running and Ready at once. Without the scheduler a Pod has
	// to name its node itself: node-0, node-1, and so on.
	Nodes int

	// Users get a token and a kubeconfig each, besides Admin and Controller.
	Users []User
	// ReadyTimeout bounds the wait for each component. 0 means two minutes, many
	// times what an unloaded machine needs.
	ReadyTimeout time.Duration
	// Detached lets the components outlive this process; Down ends them.
	Detached bool
}

// Full returns options with every component and the given number of nodes.
func Full(nodes int) Options {
	return Options{ControllerManager: true, Scheduler: true, Nodes: nodes}
}

// User is somebody who may log in at the API servers. What he may do is decided by
// RBAC objects that name him or one of his groups.
type User struct {
	// Name as RBAC and the audit log call him. No comma, quote or line break.
	Name string
	// Groups besides system:authenticated, which every user is in.
	Groups []string
}

// The components' own users.
const (
	controllerManagerUser = "system:kube-controller-manager"
	schedulerUser         = "system:kube-scheduler"
	kwokUser              = "kwok"
)

// predefinedUsers are the users that exist whatever Options.Users says.
func predefinedUsers() []User {
	return []User{
		{Name: Admin, Groups: []string{"system:masters"}},
		{Name: Controller, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:warmpool-system"}},
		{Name: controllerManagerUser},
		{Name: schedulerUser},
		{Name: kwokUser, Groups: []string{"system:masters"}},
	}
}

// withDefaults returns a copy with every zero value replaced by what it means.
func (o Options) withDefaults() Options {
	if o.APIServers == 0 {
		o.APIServers = 1
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = 2 * time.Minute
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o
}

// validate says what is wrong with options that withDefaults has completed.
func (o Options) validate() error {
	if o.APIServers < 0 || o.Nodes < 0 {
		return fmt.Errorf("control plane options: APIServers is %d and Nodes is %d: neither may be negative", o.APIServers, o.Nodes)
	}
	if o.EtcdLinks && o.Detached {
		return errors.New("control plane options: EtcdLinks and Detached: the links end with this process, and the API servers couldn't go on: leave out one of them")
	}
	seen := map[string]bool{}
	for _, u := range slices.Concat(predefinedUsers(), o.Users) {
		if u.Name == "" {
			return errors.New("control plane options: a user without a name: set User.Name")
		}
		for _, s := range append([]string{u.Name}, u.Groups...) {
			if strings.ContainsAny(s, ",\"/\\\r\n") {
				return fmt.Errorf("control plane options: user %q: %q holds a comma, a quote, a slash or a line break, which the token file can't", u.Name, s)
			}
		}
		if seen[fileName(u.Name)] {
			return fmt.Errorf("control plane options: user %q is there twice or is predefined: give it another name", u.Name)
		}
		seen[fileName(u.Name)] = true
	}
	return nil
}

// fileName turns a user's name into the name of a file. A colon separates the paths
// in KUBECONFIG, so none may be in it.
func fileName(user string) string {
	return strings.ReplaceAll(user, ":", "_")
}
